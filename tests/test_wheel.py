"""Wheels of bundles: read back by the standard library, by pip, and found by the loader."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from importlib.metadata import PathDistribution

import pytest
from making import GFX942, GFX950

from aotkern.errors import InputError
from aotkern.loader.discovery import find
from aotkern.lock import file_name
from aotkern.wheel import Project, wheel

PROJECT = Project("My-Kernels", "1.2.0", "my", "Apache-2.0", {"LICENSE": b"text"})


@pytest.fixture
def made(sample) -> bytes:
    return wheel(PROJECT, [sample.bundle(GFX942), sample.bundle(GFX950)])


def test_every_file_is_recorded_with_its_digest(made):
    archive = zipfile.ZipFile(io.BytesIO(made))
    rows = list(csv.reader(io.StringIO(archive.read("my_kernels-1.2.0.dist-info/RECORD").decode())))
    assert {row[0] for row in rows} == set(archive.namelist())
    for name, digest, size in rows:
        if not name.endswith("RECORD"):
            data = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(data)))


def test_the_same_content_is_the_same_wheel(made, sample):
    assert wheel(PROJECT, [sample.bundle(GFX942), sample.bundle(GFX950)]) == made


def test_provenance_and_licence_are_inside(made, sample):
    archive = zipfile.ZipFile(io.BytesIO(made))
    rows = json.loads(archive.read("my_kernels/provenance.json"))
    assert [row["target"] for row in rows] == ["hip:gfx942", "hip:gfx950"]
    assert rows[0]["digest"] == str(sample.bundle(GFX942).digest)
    assert set(rows[1]["sources"]) == {"scale", "negate"}
    assert archive.read("my_kernels-1.2.0.dist-info/licenses/LICENSE") == b"text"


def test_the_loader_finds_an_installed_wheel_by_its_entry_point(made, tmp_path, monkeypatch):
    zipfile.ZipFile(io.BytesIO(made)).extractall(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    distribution = PathDistribution(tmp_path / "my_kernels-1.2.0.dist-info")
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert [str(found.open().manifest.target) for found in find("my", ())] == ["hip:gfx942", "hip:gfx950"]


def test_wheels_of_single_targets_are_found_together(sample, tmp_path, monkeypatch):
    for target in (GFX942, GFX950):
        data = wheel(Project(f"kernels-{target.slug}", "1", "both", "MIT"), [sample.bundle(target)])
        zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(str(found.open().manifest.target) for found in find("both", ())) == ["hip:gfx942", "hip:gfx950"]


def test_signatures_travel_with_their_bundles(sample, tmp_path, monkeypatch):
    bundle = sample.bundle(GFX942)
    name = file_name(bundle)
    data = wheel(Project("signed-kernels", "1", "signed", "MIT"), [bundle], {name: b"signatures"})
    zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = find("signed", ())
    assert found.signature.read_bytes() == b"signatures"
    with pytest.raises(InputError, match="signatures of"):
        wheel(PROJECT, [bundle], {"other.gfx942.aotk": b"signatures"})


def test_names_with_commas_are_recorded(sample):
    project = Project("my", "1", "my", "MIT", {'LICENSE, "old"': b"text"})
    archive = zipfile.ZipFile(io.BytesIO(wheel(project, [sample.bundle(GFX942)])))
    rows = list(csv.reader(io.StringIO(archive.read("my-1.dist-info/RECORD").decode())))
    assert {row[0] for row in rows} == set(archive.namelist())
    assert {len(row) for row in rows} == {3}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"name": "-a"}, "name"),
        ({"version": "latest"}, "version"),
        ({"entry": "a b"}, "entry"),
        ({"licence": ""}, "SPDX"),
    ],
)
def test_a_project_is_checked(changes, where):
    with pytest.raises(InputError, match=where):
        Project(**{"name": "a", "version": "1", "entry": "a", "licence": "MIT", **changes})


def test_a_wheel_needs_bundles_of_different_names(sample):
    with pytest.raises(InputError, match="one or more, with different file names"):
        wheel(PROJECT, [sample.bundle(GFX942)] * 2)
    with pytest.raises(InputError, match="found none"):
        wheel(PROJECT, [])
