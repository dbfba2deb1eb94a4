"""`aotkern.load`: where bundles are found, which one fits, and what is said about the others."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bundles import Spec, make

import aotkern
from aotkern.drivers.null import NullDriver
from aotkern.errors import InputError, IntegrityError, MissingToolError, TargetError
from aotkern.loader import discovery
from aotkern.target import Target

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def other(compile_kernel) -> bytes:
    return make(compile_kernel, "gfx950", (Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),))


@pytest.fixture
def folder(tmp_path, data, other) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "scale.gfx942.aotk").write_bytes(data)
    (tmp_path / "b" / "scale.gfx950.aotk").write_bytes(other)
    return tmp_path / "b"


def driver(*targets: str) -> NullDriver:
    return NullDriver(tuple(Target.parse(text) for text in targets))


def test_bundle_by_path(folder):
    bundle = aotkern.load(folder / "scale.gfx942.aotk", driver=driver("gfx942"))
    assert (str(bundle.manifest.target), list(bundle)) == ("hip:gfx942", ["scale"])


def test_folder_gives_the_bundle_that_fits(folder):
    assert str(aotkern.load(folder, driver=driver("gfx950")).manifest.target) == "hip:gfx950"
    assert str(aotkern.load(folder, driver=driver("gfx942")).manifest.target) == "hip:gfx942"


def test_device_can_be_named_by_number_or_target(folder):
    both = driver("gfx942", "gfx950")
    assert str(aotkern.load(folder, driver=both, device=1).manifest.target) == "hip:gfx950"
    assert str(aotkern.load(folder, driver=both, device="gfx950").manifest.target) == "hip:gfx950"
    with pytest.raises(TargetError, match="has no cuda:90"):
        aotkern.load(folder, driver=both, device="cuda:90")
    with pytest.raises(InputError, match="one of 2 devices"):
        aotkern.load(folder, driver=both, device=2)


def test_bundle_for_another_chip_is_refused_at_open_with_what_is_there(folder):
    with pytest.raises(TargetError) as caught:
        aotkern.load(folder, driver=driver("cuda:90"))
    assert [Path(where).name for where, _ in caught.value.present] == ["scale.gfx942.aotk", "scale.gfx950.aotk"]
    with pytest.raises(TargetError, match="built for gfx942, the device is gfx950"):
        aotkern.load(folder / "scale.gfx942.aotk", driver=driver("gfx950"))


def test_name_of_the_file_does_not_decide(folder, other):
    (folder / "scale.gfx942.aotk").write_bytes(other)
    with pytest.raises(TargetError, match="built for gfx950"):
        aotkern.load(folder / "scale.gfx942.aotk", driver=driver("gfx942"))


def test_damaged_bundle_is_refused_or_passed_over_with_a_reason(folder):
    path = folder / "scale.gfx942.aotk"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(IntegrityError):
        aotkern.load(path, driver=driver("gfx942"))
    with pytest.raises(TargetError, match=r"refused: .*sha256"):
        aotkern.load(folder, driver=driver("gfx942"))


def test_moved_bundle_is_the_one_that_is_read(folder, tmp_path, other):
    moved = tmp_path / "elsewhere" / "scale.gfx942.aotk"
    moved.parent.mkdir()
    shutil.move(folder / "scale.gfx942.aotk", moved)
    (folder / "scale.gfx942.aotk").write_bytes(other)
    assert str(aotkern.load(moved, driver=driver("gfx942")).manifest.target) == "hip:gfx942"


@pytest.mark.parametrize("name", ["nothing_of_this_name", "missing.gfx942.aotk", "some/folder"])
def test_what_is_not_there_is_an_error(name, caplog):
    with caplog.at_level(logging.WARNING, "aotkern"), pytest.raises(InputError):
        aotkern.load(name, driver=driver("gfx942"))


def test_one_line_says_what_was_found(folder, caplog):
    with caplog.at_level(logging.INFO, "aotkern"):
        aotkern.load(folder, driver=driver("gfx950"))
    (line,) = caplog.messages
    assert line.endswith("scale.gfx950.aotk: 1 variants for hip:gfx950, 1 others do not fit")
    caplog.clear()
    with caplog.at_level(logging.INFO, "aotkern"), pytest.raises(TargetError):
        aotkern.load(folder, driver=driver("cuda:90"))
    assert [message.partition(": ")[2][:22] for message in caplog.messages] == ["not used: device 0 (no"] * 2


def test_machine_without_the_driver_says_so(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("AOTKERN_HIP_LIBRARY", str(tmp_path / "none.so"))
    from aotkern.loader import choosing

    monkeypatch.setattr(choosing, "_driver", choosing._driver.__wrapped__)
    with pytest.raises(MissingToolError, match="ROCm"):
        aotkern.load(folder / "scale.gfx942.aotk")
    with pytest.raises(TargetError, match="ROCm"):
        aotkern.load(folder)


def test_name_is_looked_for_on_the_bundle_path(folder, monkeypatch):
    monkeypatch.setenv("AOTKERN_BUNDLE_PATH", f"/nonexistent:{folder}")
    assert str(aotkern.load("scale", driver=driver("gfx950")).manifest.target) == "hip:gfx950"


PACKAGE = "aotkern_test_package"


def package(root: Path, data: bytes, other: bytes) -> None:
    inside = root / PACKAGE
    inside.mkdir()
    (inside / "__init__.py").write_text("")
    (inside / "scale.gfx942.aotk").write_bytes(data)
    (inside / "scale.gfx950.aotk").write_bytes(other)
    info = root / f"{PACKAGE}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{discovery.GROUP}]\nscale = {PACKAGE}\n")


@pytest.fixture
def forget_package():
    yield
    sys.modules.pop(PACKAGE, None)


@pytest.mark.parametrize("name", ["scale", PACKAGE])
def test_bundles_inside_an_installed_package(tmp_path, monkeypatch, data, other, name, forget_package):
    package(tmp_path, data, other)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(aotkern.load(name, driver=driver("gfx950")).manifest.target) == "hip:gfx950"


@pytest.mark.parametrize("name", ["scale", PACKAGE])
def test_bundles_inside_a_zip_file(tmp_path, monkeypatch, data, other, name, forget_package):
    (tmp_path / "tree").mkdir()
    package(tmp_path / "tree", data, other)
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((tmp_path / "tree").rglob("*")):
            file.write(path, path.relative_to(tmp_path / "tree"))
    monkeypatch.syspath_prepend(str(archive))
    bundle = aotkern.load(name, driver=driver("gfx942"))
    assert bundle.where == f"{PACKAGE}/scale.gfx942.aotk"


def test_all_known_bundles(tmp_path, monkeypatch, data, other, folder, forget_package):
    (tmp_path / "site").mkdir()
    package(tmp_path / "site", data, other)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = [item.where for item in discovery.known((folder,))[0]]
    assert [Path(where).parent.name for where in found] == ["b", "b", PACKAGE, PACKAGE]


def test_loading_imports_neither_triton_nor_torch_nor_the_build_half(folder):
    code = f"""
import sys, aotkern
from aotkern import Pointer
bundle = aotkern.load({str(folder / "scale.gfx942.aotk")!r}, driver="null")
bundle.preload()
bundle["scale"][1](Pointer(16, "fp32", 64), Pointer(16, "fp32", 64), 16, 1.0)
assert bundle.counters().launches == 1
heavy = {{"triton", "torch", "numpy", "elftools", "msgpack", "click", "rich", "socket"}} & set(sys.modules)
build = [name for name in sys.modules if name.startswith(("aotkern.build", "aotkern.audit", "aotkern.cli"))]
print(sorted(heavy), build)
"""
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert out.stdout == "[] []\n"


def test_importing_aotkern_imports_none_of_its_rooms():
    code = "import sys, aotkern; print([name for name in sys.modules if name.startswith('aotkern')])"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert out.stdout == "['aotkern']\n"
