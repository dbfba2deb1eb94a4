import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton")

from aotkern import tritons
from aotkern.build import toolchain, wheels
from aotkern.digest import Digest


@pytest.fixture
def installed(tmp_path):
    """A miniature of an installation."""
    root = tmp_path / "triton"
    for name, text in (
        ("__init__.py", "version"),
        ("backends/amd/compiler.py", "code"),
        ("backends/amd/lib/ocml.bc", "bitcode"),
        ("backends/amd/include/x.h", "header"),
        ("compiler/__pycache__/x.pyc", "cache"),
        ("_C/libtriton.so", "machine code"),
        ("_C/libproton.so", "profiler"),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_place_of_an_installation_is_not_in_its_digest(installed, tmp_path):
    again = Path(shutil.copytree(installed, tmp_path / "venv" / "triton"))
    assert toolchain._digest(installed, None) == toolchain._digest(again, None)


@pytest.mark.parametrize(
    "name", ["__init__.py", "backends/amd/compiler.py", "backends/amd/lib/ocml.bc", "_C/libtriton.so"]
)
def test_one_changed_byte_of_what_compiles_is_seen(installed, name):
    before = toolchain._digest(installed, None)
    (installed / name).write_text("x")
    assert toolchain._digest(installed, None) != before


@pytest.mark.parametrize("name", ["backends/amd/include/x.h", "compiler/__pycache__/x.pyc", "_C/libproton.so"])
def test_what_does_not_compile_is_left_out(installed, name):
    before = toolchain._digest(installed, None)
    (installed / name).write_text("x")
    assert toolchain._digest(installed, None) == before


def test_a_memo_is_used_only_for_the_files_it_was_made_from(installed, large, tmp_path):
    memo = tmp_path / "cache" / "toolchain"
    before = toolchain._digest(installed, memo)
    assert memo.is_file()
    assert toolchain._digest(installed, memo) == before
    (installed / "_C" / "libtriton.so").write_text("other machine code")
    assert toolchain._digest(installed, memo) == toolchain._digest(installed, None) != before


@pytest.fixture
def large(installed):
    """The library of the miniature, so large that a memo remembers it."""
    path = installed / "_C" / "libtriton.so"
    path.write_bytes(bytes(toolchain._REMEMBERED_BYTES))
    return path


def flipped(path):
    """Change one byte of a file, in place, and put its times back as far as a program can."""
    before = path.stat()
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_memo_spares_the_reading_of_large_files(installed, large, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(toolchain, "_hashed", lambda path, real=toolchain._hashed: read.append(path) or real(path))
    digests = {str(toolchain._digest(installed, tmp_path / "memo")) for _ in range(3)}
    assert (len(digests), read) == (1, [large])


@pytest.mark.parametrize("name", ["_C/libtriton.so", "backends/amd/compiler.py"])
def test_a_restored_time_of_modification_hides_no_change(installed, large, tmp_path, name):
    memo = tmp_path / "memo"
    before = toolchain._digest(installed, memo)
    flipped(installed / name)
    assert toolchain._digest(installed, memo) == toolchain._digest(installed, None) != before


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_time_is_seen(installed, large, tmp_path):
    memo = tmp_path / "memo"
    before, stat = toolchain._digest(installed, memo), large.stat()
    other = large.with_name("other")
    other.write_bytes(b"x" * stat.st_size)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(large)
    assert toolchain._digest(installed, memo) == toolchain._digest(installed, None) != before


def test_a_memo_that_others_may_write_is_not_believed(installed, large, tmp_path):
    memo = tmp_path / "memo"
    honest = toolchain._digest(installed, memo)
    rows = json.loads(memo.read_text())
    memo.write_text(json.dumps({name: [*row[:-1], "0" * 64] for name, row in rows.items()}))
    memo.chmod(0o666)
    assert toolchain._digest(installed, memo) == honest


def test_builds_of_one_library_for_several_pythons_are_one_toolchain(installed, monkeypatch):
    library = installed / "_C" / "libtriton.so"
    library.write_text("for one Python")
    first, digest = toolchain._digest(installed, None), hashlib.sha256(b"for another").hexdigest()
    library.write_text("for another")
    assert toolchain._digest(installed, None) != first
    monkeypatch.setitem(wheels._SPEAKERS, digest, hashlib.sha256(b"for one Python").hexdigest())
    assert toolchain._digest(installed, None) == first
    library.write_text("for another, patched")
    assert toolchain._digest(installed, None) != first


def test_the_table_names_each_library_once():
    digests = [digest for builds in wheels.LIBTRITON.values() for digest in builds.values()]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 and not set(digest) - set("0123456789abcdef") for digest in digests)
    assert set(wheels.LIBTRITON) <= set(tritons.TESTED)


def test_the_toolchain_here_is_that_of_the_committed_manifests():
    import triton

    manifest = json.loads((Path(__file__).parents[2] / "manifests" / "gfx942.json").read_text())
    if manifest["toolchain"]["triton"] != triton.__version__:
        pytest.skip("another version of Triton")
    assert toolchain.describe() == manifest["toolchain"]


@pytest.mark.parametrize("content", ["", "one", "[]", "[" * 100_000, '{"x": []}', '{"x": [1,2,3,4,5,"y"]}', "\0"])
def test_a_damaged_memo_is_replaced(installed, large, tmp_path, content):
    memo = tmp_path / "toolchain"
    memo.write_text(content)
    assert toolchain._digest(installed, memo) == toolchain._digest(installed, None)
    assert memo.read_text() != content


def test_the_toolchain_is_named_by_version_revision_and_digest():
    import triton

    found = toolchain.describe()
    assert found["triton"] == triton.__version__
    assert found["amd_codegen"]
    Digest.parse(found["triton_digest"])


def test_a_triton_whose_amd_code_generator_has_no_revision_of_its_own_is_named_too(monkeypatch):
    import triton.backends.amd.compiler as amd

    monkeypatch.delattr(amd, "get_amd_codegen_revision", raising=False)
    found = toolchain.describe()
    assert found["amd_codegen"] == toolchain.IN_LIBTRITON
    Digest.parse(found["triton_digest"])
