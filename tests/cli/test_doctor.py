"""`aotkern doctor` on a machine without a GPU, and on one whose HIP driver is a library without a GPU."""

from __future__ import annotations

import pytest
from making import GFX942, GFX950, packed

from aotkern.loader import choosing


@pytest.fixture
def folder(sample, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "scale.gfx942.aotk").write_bytes(packed(sample.build(GFX942)))
    (tmp_path / "b" / "scale.gfx950.aotk").write_bytes(packed(sample.build(GFX950)))
    return tmp_path / "b"


@pytest.fixture
def no_hip(monkeypatch, tmp_path):
    monkeypatch.setenv("AOTKERN_HIP_LIBRARY", str(tmp_path / "none.so"))
    monkeypatch.setattr(choosing, "_driver", choosing._driver.__wrapped__)


@pytest.fixture
def with_hip(monkeypatch, hip):
    monkeypatch.setenv("AOTKERN_HIP_LIBRARY", str(hip.path))
    monkeypatch.setattr(choosing, "_driver", choosing._driver.__wrapped__)
    return hip


def test_machine_without_a_gpu(aotkern, folder, no_hip):
    answer = aotkern("doctor", folder)
    assert answer.code == 1
    assert "ROCm 6 or newer" in answer.out
    assert answer.out.count("does not fit") == 2
    document = aotkern("doctor", folder, "--json").json("doctor", 1)
    assert [item["reason"].partition(" driver")[0] for item in document["bundles"]] == ["the hip"] * 2


def test_devices_features_and_what_fits(aotkern, folder, with_hip):
    with_hip.reset("gfx950:sramecc+:xnack-", "gfx1100", "gfx950:sramecc+:xnack-")
    answer = aotkern("doctor", folder)
    assert answer.code == 0
    assert (
        "device 0   AMD Instinct (fake), gfx950:sramecc+:xnack-, 256 compute units, 163840 bytes of LDS" in answer.out
    )
    assert "gfx1100, 256 compute units, 65536 bytes of LDS; aotkern does not know this architecture" in answer.out
    assert f"does not fit {folder}/scale.gfx942.aotk" in answer.out
    assert "built for gfx942, the device is gfx950" in answer.out
    assert f"fits         {folder}/scale.gfx950.aotk" in answer.out
    document = aotkern("doctor", folder, "--json").json("doctor")
    (driver, _) = document["drivers"]
    assert (driver["name"], driver["library"]) == ("hip", str(with_hip.path))
    assert [device["target"] for device in driver["devices"]] == [
        "hip:gfx950:sramecc+:xnack-", "", "hip:gfx950:sramecc+:xnack-"
    ]  # fmt: skip
    assert [item["devices"] for item in document["bundles"]] == [[], [0, 2]]
    assert not any(line.startswith("load") for line in with_hip.log)


def test_planned_machine_needs_no_driver(aotkern, folder, no_hip):
    document = aotkern("doctor", "--target", "gfx942:sramecc+:xnack-", folder, "--json").json("doctor")
    assert [item["devices"] for item in document["bundles"]] == [[0], []]
    assert document["bundles"][0]["modules"] > 0
    assert aotkern("doctor", "--target", "cuda:90", folder).code == 1
    assert aotkern("doctor", "--target", "gfx900", folder).code == 2


def test_damaged_bundle_is_refused_by_name(aotkern, folder, no_hip):
    path = folder / "scale.gfx942.aotk"
    path.write_bytes(path.read_bytes()[:-1])
    answer = aotkern("doctor", path)
    assert answer.code == 1
    assert f"refused      {path}" in answer.out
    aotkern("doctor", path, "--json").json("doctor", 1)


def test_missing_bundle(aotkern, no_hip):
    answer = aotkern("doctor", "nothing_of_this_name", "no/such/folder")
    assert answer.code == 1
    assert answer.out.count("missing  ") == 2
    aotkern("doctor", "nothing_of_this_name", "--json").json("doctor", 1)


def test_bundles_are_found_by_themselves(aotkern, folder, monkeypatch, no_hip):
    assert "no bundle was named or found" in aotkern("doctor").out
    monkeypatch.setenv("AOTKERN_BUNDLE_PATH", str(folder))
    assert aotkern("doctor", "--target", "gfx950").out.count("scale.gfx9") == 2
