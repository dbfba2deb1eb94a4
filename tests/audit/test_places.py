"""Where kernels are defined, read from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotkern.audit import places
from aotkern.audit.places import Place
from aotkern.errors import InputError

TEXT = """\
import triton
from triton import jit


def plain(): ...


@triton.autotune(configs=[], key=[])
@triton.jit
def tuned(x):
    pass


@jit
def short(x): pass


@triton.jit(do_not_specialize=["n"])
def called(
    x,
    n,
): pass


KERNELS = (Kernel(tuned), Kernel(short, name="renamed"), Kernel(plain, name="not one"))
"""


def test_each_kernel_has_the_line_of_its_def(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(TEXT, "utf-8")
    lines = {"tuned": 10, "short": 15, "called": 19}
    wanted = {name: Place(str(file), line) for name, line in lines.items()}
    wanted |= {f"some.{name}": place for name, place in wanted.items()}
    wanted |= {name: Place(str(file), 15) for name in ("renamed", "some.renamed")}
    assert places.of([str(file)]) == wanted
    assert places.of([str(tmp_path), str(file)]) == wanted


def test_a_name_in_two_files_is_known_with_its_module_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("@triton.jit\ndef add(x): pass\n", "utf-8")
    found = places.of([str(tmp_path)])
    assert set(found) == {"a.add", "b.add"}
    assert places.place_of("b.add[hip:gfx942](x:*fp32)", found) == Place(str(tmp_path / "b.py"), 2)
    assert places.place_of("add[hip:gfx942](x:*fp32)", found) is None


@pytest.mark.parametrize("content", [b"def (", b"\0", b"\xff", b"x = " + b"(" * 5000])
def test_what_is_no_python_has_no_places(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    assert places.of([str(tmp_path)]) == {}


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for source in (str(tmp_path / "absent.py"), "no_such_module_here", "no_such/folder"):
        with pytest.raises(InputError, match="expected a"):
            places.of([source])


def test_a_module_is_found_by_its_name_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pack_of_kernels"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit", "utf-8")
    (folder / "inner.py").write_text("@triton.jit\ndef add(x): pass\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    wanted = Place(str(folder / "inner.py"), 2)
    assert places.of(["pack_of_kernels"])["add"] == places.of(["pack_of_kernels.inner"])["inner.add"] == wanted
