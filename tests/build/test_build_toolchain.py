import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton")

from aotkern.build import toolchain
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


def test_a_memo_is_used_only_for_the_files_it_was_made_from(installed, tmp_path):
    memo = tmp_path / "cache" / "toolchain"
    before = toolchain._digest(installed, memo)
    assert memo.is_file()
    assert toolchain._digest(installed, memo) == before
    (installed / "_C" / "libtriton.so").write_text("other machine code")
    assert toolchain._digest(installed, memo) == toolchain._digest(installed, None) != before


@pytest.mark.parametrize("content", ["", "one", "a b c", "\0", f"x {Digest.of(b'')}"])
def test_a_damaged_memo_is_replaced(installed, tmp_path, content):
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
