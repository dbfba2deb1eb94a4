"""Where a driver's library is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotkern.drivers import NAMES, open_driver
from aotkern.drivers.library import candidates, mapped, package_folder
from aotkern.errors import InputError
from aotkern.settings import Settings


def test_the_users_choice_is_the_only_one(tmp_path):
    names = candidates("libx.so", tmp_path / "mine.so", ["/usr/lib/libx.so.6"], [tmp_path], (".6", ""))
    assert list(names) == [str(tmp_path / "mine.so")]


def test_what_is_loaded_comes_before_folders_and_the_dynamic_loader(tmp_path):
    (tmp_path / "libx.so.6").write_bytes(b"")
    loaded = ["/usr/lib/libx.so.6.1", "/usr/lib/liby.so", "/usr/lib/libx.so.6.1"]
    names = candidates("libx.so", None, loaded, [tmp_path / "missing", tmp_path], (".7", ".6", ""))
    assert list(names) == [
        "/usr/lib/libx.so.6.1", str(tmp_path / "libx.so.6"), "libx.so.7", "libx.so.6", "libx.so"
    ]  # fmt: skip


def test_mapped_files_are_read_from_the_system(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0 08:01 1   /opt/rocm/lib/libamdhip64.so.6.1\n7f02-7f03 rw-p 0 00:00 0\n" * 2)
    assert mapped(maps) == ("/opt/rocm/lib/libamdhip64.so.6.1",)
    assert mapped(tmp_path / "none") == ()


def test_packages_are_found_without_importing_them():
    (folder,) = package_folder("email", "mime")
    assert (folder / "text.py").is_file()
    assert list(package_folder("no_such_package_at_all", "lib")) == []


def test_settings_are_read_from_an_environment():
    environment = {
        "AOTKERN_HIP_LIBRARY": "/a/libamdhip64.so",
        "ROCM_PATH": "/opt/rocm-6.4",
        "AOTKERN_BUNDLE_PATH": "/b:/c",
        "AOTKERN_PURE_PYTHON": "1",
    }
    assert Settings.read(environment) == Settings(
        hip_library=Path("/a/libamdhip64.so"),
        rocm=(Path("/opt/rocm-6.4"),),
        bundle_path=(Path("/b"), Path("/c")),
        pure_python=True,
    )
    assert Settings.read({}) == Settings()


def test_unknown_driver_is_refused():
    with pytest.raises(InputError, match=", ".join(NAMES)):
        open_driver("opencl")


def test_null_driver_has_a_device_of_each_kind():
    assert [str(device.target) for device in open_driver("null").devices()] == ["hip:gfx942", "hip:gfx950", "cuda:90"]
