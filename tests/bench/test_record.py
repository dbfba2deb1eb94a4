import dataclasses
import json

import jsonschema
import pytest

from aotkern import schemas
from aotkern.bench import Bar, Machine, Measurement, Row, Run, Table, observed
from aotkern.errors import InputError, IntegrityError
from aotkern.report import bench as report

RUN = Run(
    benchmark="launch",
    command="python -m benchmarks launch",
    date="2025-01-31T12:00:00Z",
    load=0.25,
    seconds=12.5,
    machine=Machine("A Processor, x86_64", 2, 16 << 30, "A GPU", "575.1"),
    versions=(("aotkern", "0.1.0"), ("python", "3.12.0")),
    tables=(
        Table(
            "launch",
            ("contender", "16 arguments", "file"),
            (
                Row("bare call", (Measurement.of("us", [3.25, 3.5, 3.0]), Measurement.single("B", 12_345))),
                Row("torch", (None, "none | here"), "not installed"),
            ),
        ),
    ),
    bars=(Bar("over the bare call", "x", 1.5, True, 1.44), Bar("over Triton", "x", 3, False, None, "no GPU")),
    notes=("a note",),
)
VALID = jsonschema.Draft202012Validator(schemas.load("bench"))


def test_json_is_an_inverse_and_fits_its_schema(tmp_path):
    path = RUN.write(tmp_path / "results")
    assert path.name == "launch.json"
    assert Run.read(path) == RUN
    VALID.validate(json.loads(path.read_text()))
    assert Run.read(path).dumps() == path.read_text()


def test_a_list_of_numbers_is_one_line():
    assert "[3.25, 3.5, 3.0]" in RUN.dumps()


def test_a_text_that_looks_like_a_list_stays_as_it_is():
    odd = dataclasses.replace(RUN, notes=("[\n 1,\n 2\n]",))
    assert Run.from_json(json.loads(odd.dumps())) == odd


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d.update(schema="aotkern.bench/1"), "f.schema"),
        (lambda d: d["bars"][0].update(met=False), r"f.bars\[0\].met"),
        (lambda d: d["bars"][1].update(met=True), r"f.bars\[1\].met"),
        (lambda d: d["tables"][0]["rows"][0]["cells"].pop(), r"f.tables\[0\].rows\[0\].cells"),
        (lambda d: d["tables"][0].update(rows=[]), "table 'launch'"),
        (lambda d: d["tables"][0]["rows"][0]["cells"][0].update(median=1), "what its samples say"),
        (lambda d: d["machine"].update(cores=-1), "f.machine.cores"),
        (lambda d: d.update(more=1), "exactly the fields"),
        (lambda d: d.update(load="high"), "f.load"),
        (lambda d: d.update(notes="a"), "f.notes"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(change, where):
    document = RUN.to_json()
    change(document)
    with pytest.raises(IntegrityError, match=where):
        Run.from_json(document, "f")


@pytest.mark.parametrize("text", ["", "{", "[1e999]", '{"a": NaN}', "null"])
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match=r"x\.json"):
        Run.read(path)
    with pytest.raises(InputError, match="a file of results"):
        Run.read(tmp_path / "absent.json")


def test_a_table_must_be_rectangular():
    with pytest.raises(InputError, match="rows of 1 cells, found 0 in 'a'"):
        Table("t", ("x", "y"), (Row("a", ()),))


def test_cells_and_tables_by_name():
    assert RUN.table("launch").cell("bare call", "file") == Measurement.single("B", 12_345)
    for wrong in (("bare call", "contender"), ("x", "file")):
        with pytest.raises(InputError, match="names of a row and a column"):
            RUN.table("launch").cell(*wrong)
    with pytest.raises(InputError, match="a table 'x'"):
        RUN.table("x")


@pytest.mark.parametrize(
    ("bar", "met"),
    [
        (Bar("a", "x", 1.5, True, 1.5), True),
        (Bar("a", "x", 1.5, True, 1.51), False),
        (Bar("a", "x", 3, False, 3.0), True),
        (Bar("a", "x", 3, False, 2.9), False),
        (Bar("a", "x", 3, False, None), None),
    ],
)
def test_a_bar_is_kept_or_not(bar, met):
    assert bar.met is met


def test_what_people_read():
    shown = report.text(RUN)
    assert "A Processor, x86_64, 2 cores; 16 GiB; A GPU, driver 575.1; aotkern 0.1.0, python 3.12.0" in shown
    assert "3.25 us (3.12 to 3.38 us)" in shown
    assert "12.3 kB" in shown
    assert "torch: not installed" in shown
    assert "at most 1.5 x" in shown
    assert "1.44 x" in shown
    assert "not measured" in shown
    page = report.markdown(RUN)
    assert "| torch | - | none \\| here |" in page
    assert "note" in page


def test_this_machine_is_observed():
    run = observed("x", "a command", ["click", "no-such-package"]).run([RUN.tables[0]], versions={"gcc": "14"})
    VALID.validate(run.to_json())
    assert run.machine.cores >= 1
    assert run.machine.memory > 1 << 28
    assert {"python", "aotkern", "click", "gcc"} <= dict(run.versions).keys()
    assert "no-such-package" not in dict(run.versions)
