import dataclasses

import pytest

pytest.importorskip("triton")

from making import GFX942, HEAD, SINGLE, edited, request, written

from aotkern.audit import reproducible
from aotkern.audit.findings import Verdict
from aotkern.audit.reproducible import AXES, ReproducibleReport, audit
from aotkern.build import builder

PLACE = "KERNELS = ("


def dependent(expression):
    """`SINGLE` with a value that comes from somewhere else."""
    return edited(
        SINGLE, (HEAD, f"{HEAD}import os\nimport sys\nimport time\n"), ('"V": 1.0', f'"V": float({expression})')
    )


def test_a_clean_source_is_reproducible(tmp_path):
    steps = []
    report = audit(request(written(tmp_path, SINGLE)), steps.append)
    assert report.verdict is Verdict.CLEAN
    assert report.findings == ()
    assert report.variants == 1
    assert list(report.digests) == ["hip:gfx942"]
    assert report.axes == tuple(AXES)
    # Two builds and no more: the axes are taken apart only when something differs.
    assert len(steps) == 2


@pytest.fixture
def axes(monkeypatch):
    """Fewer axes, so that a test that takes them apart stays quick."""

    def chosen(*names):
        monkeypatch.setattr(reproducible, "AXES", {name: AXES[name] for name in names})

    return chosen


@pytest.mark.parametrize(
    ("expression", "guilty", "innocent"),
    [
        ("hash('x') % 1000", "hash seed", "home"),
        ("len(os.environ['HOME'])", "home", "hash seed"),
        ("len(os.environ.get('TZ', ''))", "time zone", "order"),
        ("len(os.environ['LC_ALL'])", "locale", "job count"),
        ("len(__file__)", "folder", "order"),
        ("os.stat(__file__).st_mtime % 1000", "mtimes", "hash seed"),
        ("sys._getframe().f_lineno", "line positions", "hash seed"),
    ],
    ids=lambda value: value if " " in value else None,
)
def test_what_a_source_depends_on_is_named(tmp_path, axes, expression, guilty, innocent):
    axes(innocent, guilty)
    report = audit(request(written(tmp_path, dependent(expression))))
    assert report.verdict is Verdict.FINDINGS
    assert guilty in report.broken["hip:gfx942"]
    if guilty not in ("mtimes", "line positions"):  # these two also move the folder, which a copy needs
        assert report.broken["hip:gfx942"] == (guilty,)
    (finding,) = report.findings
    assert finding.subject == "hip:gfx942"
    assert guilty in finding.message


def test_what_no_axis_breaks_alone_is_still_told(tmp_path, axes):
    axes("time zone", "locale")
    both = "2 if os.environ.get('TZ') and os.environ['LC_ALL'] == 'C' else 1"
    report = audit(request(written(tmp_path, dependent(both))))
    assert report.broken == {"hip:gfx942": ("several axes together",)}


def test_the_copy_takes_what_a_loose_file_imports(tmp_path, axes):
    axes("folder", "line positions", "mtimes")
    written(tmp_path / "helpers", "VALUE = 3.0\n", "__init__.py")
    written(tmp_path, "from helpers import VALUE\n", "beside.py")
    source = written(tmp_path, edited(SINGLE, (HEAD, f"from beside import VALUE\n{HEAD}"), ('"V": 1.0', '"V": VALUE')))
    assert audit(request(source)).verdict is Verdict.CLEAN
    assert (tmp_path / "beside.py").read_text() == "from helpers import VALUE\n"


def test_a_file_inside_a_package_is_copied_with_it(tmp_path, axes):
    axes("folder", "line positions")
    package = tmp_path / "outer" / "inner"
    written(package.parent, "", "__init__.py")
    written(package.parent, "VALUE = 3.0\n", "above.py")
    written(package, "", "__init__.py")
    text = edited(SINGLE, (HEAD, f"{HEAD}from ..above import VALUE\n"), ('"V": 1.0', '"V": VALUE'))
    assert audit(request(written(package, text))).verdict is Verdict.CLEAN


def test_the_store_is_not_asked(tmp_path):
    source = written(tmp_path, SINGLE)
    builder.compile_targets(request(source, store=tmp_path / "store"))
    for path in (tmp_path / "store").glob("aotkern-store/??/*"):
        path.write_bytes(b"planted")
    seen = []
    audit(dataclasses.replace(request(source), store=tmp_path / "store"), seen.append)
    assert all(step.seconds > 0 for step in seen)
    assert all(path.read_bytes() == b"planted" for path in (tmp_path / "store").glob("aotkern-store/??/*"))


def test_what_does_not_compile_proves_nothing(tmp_path):
    report = audit(request(written(tmp_path, edited(SINGLE, ("tl.store(x, V)", "tl.store(x, nowhere)")))))
    assert report.verdict is Verdict.UNKNOWN
    assert report.obstacle.startswith("1 variants do not compile, the first: store[hip:gfx942]")


def test_nothing_declared_proves_nothing(tmp_path):
    text = edited(SINGLE, ('"gfx942"', '"gfx950"'))
    report = audit(request(written(tmp_path, text), GFX942))
    assert report.verdict is Verdict.UNKNOWN
    assert "nothing was compared" in report.obstacle
    assert ReproducibleReport({}, {}, (), "", 0).verdict is Verdict.UNKNOWN
