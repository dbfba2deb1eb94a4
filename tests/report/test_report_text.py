from pathlib import Path

import pytest

pytest.importorskip("triton")

from making import GFX942, hand_made

from aotkern.audit.identity import Comparison, IdentityReport, State
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.build.builder import Compilation, Published, TargetBuild
from aotkern.digest import Digest
from aotkern.errors import BuildError
from aotkern.report import built, plain, text


def test_columns_are_aligned_by_their_widest_cell():
    assert plain.table([("a", "bbb"), ("cccc", 5)], " r") == "a     bbb\ncccc    5"
    assert plain.table([]) == ""


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (14_437, "14.4 kB"), (2.5e6, "2.5 MB"), (7e10, "70 GB")],
)
def test_amounts(size, shown):
    assert plain.amount(size) == shown


def test_counted():
    assert (plain.counted(1, "variant"), plain.counted(2, "variant")) == ("1 variant", "2 variants")


def compilation(**more):
    build = TargetBuild(hand_made(), {})
    return Compilation({GFX942: build}, seconds={f"k{n}": float(n) for n in range(12)}, reused=3, wall=70.04, **more)


def published(changed=True):
    return {GFX942: Published(Path("out/x.aotk"), Digest.of(b""), 14_437, changed)}


def test_a_build_in_words():
    lines = built.text(compilation(), published()).splitlines()
    assert lines[0].split() == ["target", "variants", "objects", "code", "bundle", "file"]
    assert lines[1].split() == ["hip:gfx942", "3", "0", "11", "B", "14.4", "kB", "out/x.aotk"]
    assert lines[-1] == "12 compiled, 3 from the store, 0 failed; 70.0 s, of which 66.0 s compiling"
    assert "(unchanged)" in built.text(compilation(), published(changed=False))


def test_failures_and_notes_are_told_and_long_lists_are_cut():
    failures = [BuildError(f"k{n}", "why") for n in range(45)]
    told = built.text(compilation(failures=failures, notes=("mind this",), store_problem="/x: full"), published())
    assert told.count("failed: k") == 40
    assert "... and 5 more failures; --json lists all" in told
    assert "note: mind this\nnote: the local store could not be used (/x: full)" in told


def test_the_ten_slowest():
    lines = built.slowest_variants(compilation()).splitlines()
    assert len(lines) == 11
    assert lines[1].split() == ["11.00", "s", "k11"]
    assert built.slowest_variants(Compilation()) == "nothing was compiled"


def test_a_comparison_in_words():
    changed = Comparison("k2", State.DIFFERENT, True, {"resources": {"vgprs": [12, 20]}, "sections": [".text"]})
    same = Comparison("k1", State.IDENTICAL, True, {})
    told = text.identity(IdentityReport("hip:gfx942", "golden", "today", (same, changed)))
    assert told.splitlines() == [
        "different: k2",
        "    resources: vgprs 12 -> 20; sections: .text",
        "hip:gfx942: 1 identical, 1 different (today against golden)",
        "source text changed, code identical: 1 variant",
    ]


def test_a_comparison_that_tells_nothing_says_so():
    told = text.identity(IdentityReport("hip:gfx942", "a", "b", (), "nothing was compared"))
    assert told == "hip:gfx942: nothing compared (b against a)\ncould not tell: nothing was compared"


def test_a_rebuild_in_words():
    clean = ReproducibleReport({"hip:gfx942": Digest.of(b"")}, {}, ("folder", "order"), "", 3)
    assert text.reproducible(clean).splitlines() == [
        f"hip:gfx942: {Digest.of(b'')}",
        "3 variants built twice in private, empty caches, changing: folder, order",
    ]
    broken = ReproducibleReport({"hip:gfx942": Digest.of(b"")}, {"hip:gfx942": ("folder",)}, ("folder",), "", 1)
    assert text.reproducible(broken).startswith("hip:gfx942: DIFFERS, depends on folder\n1 variant built twice")
    assert text.reproducible(ReproducibleReport({}, {}, (), "none", 0)) == "could not tell: none"


def test_an_overview_of_a_manifest():
    lines = text.manifest(hand_made()).splitlines()
    assert lines[0].split() == ["target", "hip:gfx942"]
    assert lines[-2].split() == ["add", "2", "1", "12", "0", "0", "0", "64"]
    assert lines[-1].split() == ["copy", "1", "1", "12", "0", "0", "65536", "64"]
