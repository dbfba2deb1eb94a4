"""The suite's entry, its results in git, and the page that is made from them."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from aotkern import schemas
from aotkern.bench import Bar, Machine, Measurement, Row, Run, Table

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

suite = importlib.import_module("benchmarks.__main__")
page = importlib.import_module("benchmarks.page")
common = importlib.import_module("benchmarks.common")
readme = importlib.import_module("benchmarks.readme")

VALID = jsonschema.Draft202012Validator(schemas.load("bench"))
RESULTS = sorted(page.RESULTS.glob("*.json"))


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_page_is_what_the_results_say():
    assert page.PAGE.read_text("utf-8") == page.made(page.results())


def test_readmes_figures_are_what_the_results_say():
    text = readme.README.read_text("utf-8")
    assert text == readme.put(text, readme.section(page.results()))


def test_a_changed_result_changes_readmes_figures():
    runs = page.results()
    size = next(run for run in runs if run.benchmark == "size")
    document = size.to_json()
    share = document["tables"][0]["rows"][0]["cells"][-1]
    document["tables"][0]["rows"][0]["cells"][-1] = {**share, **Measurement.single("%", 2.75).to_json()}
    other = [Run.from_json(document) if run is size else run for run in runs]
    assert "2.75 %" not in readme.section(runs)
    assert "2.75 %" in readme.section(other)


def test_a_missed_promise_stands_where_met_ones_stand():
    size = next(run for run in page.results() if run.benchmark == "size")
    missed = dataclasses.replace(size, bars=(Bar("a share", "%", 3, at_most=True, measured=4, why="so much"),))
    assert "| a share | at most 3 % | 4 % | missed: so much |" in readme.section([missed])


def test_what_has_no_result_is_named():
    said = readme.section([])
    assert all(name in said for name in (*readme.ON_GPU, *readme.HERE))
    assert "|" not in said
    absent = {*readme.ON_GPU, *readme.HERE} - {path.stem for path in RESULTS}
    assert all(name in page.PAGE.read_text("utf-8") for name in absent)


def test_every_figure_that_is_asked_for_is_a_benchmark_of_the_suite():
    assert {*readme.ON_GPU, *readme.HERE} <= suite.BENCHMARKS.keys()
    assert readme.FIGURES.keys() <= {*readme.ON_GPU, *readme.HERE}
    assert {path.stem for path in RESULTS} <= {*readme.ON_GPU, *readme.HERE, "scale"}


QUANTITY = re.compile(r"(?<![\w.,])\d[\d.,]*\s?(?:s|ms|us|µs|min|x|times|kB|MB|GB|TB/s|%)(?![\w])")


def prose(text):
    """A page without its code and without what is made from records."""
    text = re.sub(re.escape(readme.BEGIN) + ".*?" + re.escape(readme.END), "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.stem
)
def test_no_measured_figure_is_typed_by_hand(path):
    """A time, a ratio or a size that was measured stands in a record, and on pages that are made from it."""
    if path == page.PAGE:
        return
    assert not QUANTITY.findall(prose(path.read_text("utf-8")))


def test_figures_in_prose_are_found():
    assert QUANTITY.findall("took 0.5 s, 1.97 times, 41 % and 191 kB (2 GiB, 16-byte, 3.9.0)") == [
        "0.5 s", "1.97 times", "41 %", "191 kB",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_the_counts_of_variants_in_readme_are_those_of_the_manifests(target):
    manifest = json.loads((ROOT / "manifests" / f"{target}.json").read_text("utf-8"))
    variants, objects = len(manifest["variants"]), len({entry["object"] for entry in manifest["variants"]})
    said = " ".join(readme.README.read_text("utf-8").split())
    form = {"gfx942": "{} variants with {} distinct code objects for gfx942", "gfx950": "and {} with {} for gfx950"}
    assert form[target].format(variants, objects) in said


NAMES_ITS_REVISION = "2026-11-30T12"
"""Records from before then have no field for it, and say so wherever they are shown."""


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_names_its_revision_and_its_bundles(path):
    found = Run.read(path)
    if found.date < NAMES_ITS_REVISION:
        assert "revision not noted" in page.made([found])
        return
    assert re.fullmatch(r"[0-9a-f]{40}", found.revision), "measured on a revision of git, with no changes"
    if found.benchmark in readme.ON_GPU:
        assert found.machine.gpu
        assert found.bundles


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_is_a_record_in_its_one_text(path):
    found = Run.read(path)
    assert found.benchmark == path.stem
    assert found.dumps() == path.read_text("utf-8")
    VALID.validate(json.loads(path.read_text("utf-8")))
    assert "/tmp" not in found.dumps()
    assert str(ROOT) not in found.dumps()


def test_a_changed_result_changes_the_page():
    runs = [Run.read(path) for path in RESULTS]
    other = Run.from_json({**runs[0].to_json(), "notes": ["something else"]})
    assert page.made([other, *runs[1:]]) != page.made(runs)


def test_every_promise_stands_at_the_top():
    table = Table("t", ("a", "b"), (Row("r", (Measurement.single("s", 1),)),))
    made = page.made(
        [
            Run(
                "one", "c", "2025-01-31T12:00:00Z", 0, 1, Machine("p", 1, 1), (), (table,), (Bar("x", "s", 1, True, 2),)
            ),
            Run("two", "c", "2025-01-31T12:00:00Z", 0, 1, Machine("p", 1, 1), (), (table,)),
        ]
    )
    assert "| x | at most 1 s | 2 s | missed | [one](#one) |" in made
    assert made.index("## Promises") < made.index("## one") < made.index("## two")


@pytest.mark.parametrize("name", suite.BENCHMARKS)
def test_every_benchmark_is_a_module_that_measures(name):
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    assert callable(module.measure)
    assert f"python -m benchmarks {name}" in module.__doc__


@pytest.mark.parametrize(("ratio", "met"), [(1.9, True), (1.8, False), (2.13, None)])
def test_two_jobs_cannot_gain_more_than_two(ratio, met):
    pytest.importorskip("triton")
    bar = importlib.import_module("benchmarks.build").two_jobs(ratio)
    assert bar.met is met
    assert bool(bar.why) == (met is None)


def test_every_script_is_there():
    assert all((ROOT / "benchmarks" / name).is_file() for name in suite.SCRIPTS)


def test_what_there_is_is_listed():
    listed = run("--list").stdout
    assert all(name in listed for name in (*suite.BENCHMARKS, *suite.SCRIPTS))


def test_an_unknown_benchmark_is_refused():
    answer = run("nope")
    assert answer.returncode == 2
    assert "no benchmark nope; there are build, " in answer.stderr


def test_what_needs_a_gpu_says_so_where_there_is_none(monkeypatch):
    monkeypatch.setattr(common.shutil, "which", lambda name: None)
    with pytest.raises(common.NotHereError, match="needs an NVIDIA GPU"):
        importlib.import_module("benchmarks.launch").measure(None)
    with pytest.raises(common.NotHereError, match="needs an NVIDIA GPU"):
        importlib.import_module("benchmarks.cold_start").measure(None)


def test_one_benchmark_runs_and_writes_its_record(tmp_path):
    pytest.importorskip("triton")
    answer = run("size", "--quick", "--json-dir", tmp_path)
    assert answer.returncode == 0, answer.stderr
    found = Run.read(tmp_path / "size.json")
    assert found.command == "python -m benchmarks size --quick"
    assert not found.bars  # a quick run shows that it works, and no figure
    table = found.tables[0]
    sizes = dict(zip(table.columns[1:], table.rows[0].cells, strict=True))
    packed, folder = sizes["bundle"].median, sizes["Triton's cache folder"].median
    assert packed < sizes["zstd each"].median < sizes["objects + manifest"].median < folder
    assert sizes["bundle / folder"].median == pytest.approx(100 * packed / folder, rel=1e-4)
    assert table.rows[0].name == "24"


@pytest.mark.parametrize(("count", "kernels"), [(24, (12, 8, 4)), (200, (96, 64, 40)), (1000, (480, 320, 200))])
def test_a_subset_has_so_many_variants(tmp_path, count, kernels):
    pytest.importorskip("triton")
    from aotkern.build.registry import Source, load
    from aotkern.spec import expand
    from aotkern.target import Target

    loaded = load([Source.parse(str(common.subset(count, tmp_path)))])
    found = tuple(len(expand(k.declaration, k.parameters, Target.parse("gfx942"))) for k in loaded)
    assert found == kernels
    assert sum(found) == count
