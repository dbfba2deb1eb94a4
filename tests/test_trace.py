"""Traces: canonical bytes, merging, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from aotkern import schemas
from aotkern.canonical import loads
from aotkern.digest import Digest
from aotkern.errors import IntegrityError
from aotkern.spec import VariantKey
from aotkern.trace import Chosen, Recorded, Trace, Unbuildable, merge

ROW = Recorded(
    VariantKey.parse(
        'pkg.mod.add[hip:gfx942](x:*fp32:DS,n:i32:D,shape(=1,:i32),F=&pkg.other:act#0123456789abcdef,M="a b"){num_warps=8}'
    ),
    "pkg.mod",
    Digest.of(b"source"),
    constexprs=("F", "M"),
    heuristic=("M",),
    triton="3.9.0",
)
CHOICE = Chosen("pkg.mod.add", Digest.of(b"source"), "cuda:90", ("1024", '"torch.float16"'), (("B", "64"),))
LOST = Unbuildable("pkg.mod.inner", "cuda:90", "its module was generated")


def test_a_trace_reads_back():
    trace = Trace.of([LOST, CHOICE, ROW])
    assert Trace.parse(trace.to_bytes(), "t") == trace
    assert Trace.parse(trace.to_bytes(), "t").to_bytes() == trace.to_bytes()


def test_merging_is_free_of_order_and_repetition():
    one, two = Trace.of([ROW, CHOICE]), Trace.of([LOST, ROW])
    assert merge([one, two]) == merge([two, one]) == Trace.of([ROW, CHOICE, LOST])


def test_what_a_program_asked_for_is_no_trial_even_if_a_benchmark_asked_for_it_too():
    trial = replace(ROW, trial=True)
    assert Trace.of([trial]).recorded == (trial,)
    assert Trace.of([trial, ROW]).recorded == Trace.of([ROW, trial]).recorded == (ROW,)


def test_the_later_choice_counts():
    later = replace(CHOICE, config=(("B", "128"),))
    assert Trace.of([CHOICE, later]).chosen == (later,)


def test_every_line_fits_its_schema():
    schema = jsonschema.Draft202012Validator(schemas.load("trace"))
    for line in Trace.of([ROW, CHOICE, LOST]).to_bytes().splitlines():
        schema.validate(loads(line, "line"))
    with pytest.raises(jsonschema.ValidationError):
        schema.validate({"variant": str(ROW.key)})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"variant":"no key"}', "exactly the fields"),
        ('{"unbuildable":"a","target":"b","reason":""}', "a text that is not empty"),
        ("{}", "exactly the fields unbuildable"),
        ("[1]", "exactly the fields"),
        ("{", "a JSON document"),
    ],
)
def test_a_damaged_line_is_named(line, found):
    data = Trace.of([ROW]).to_bytes() + line.encode() + b"\n"
    with pytest.raises(IntegrityError, match=found) as caught:
        Trace.parse(data, "t.jsonl")
    assert str(caught.value).startswith("t.jsonl: line 3")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"module":"pkg.mod"', '"module":"pkg.other"', "a kernel of module pkg.other"),
        ('"heuristic":["M"]', '"heuristic":"M"', "a list of texts"),
        ("n:i32:D", "n:i33:D", "one of"),
        ("sha256:", "md5:", "64 lower-case hex digits"),
    ],
)
def test_a_damaged_field_is_named(old, new, found):
    data = Trace.of([ROW]).to_bytes().decode()
    assert old in data
    with pytest.raises(IntegrityError, match=found):
        Trace.parse(data.replace(old, new).encode(), "t.jsonl")


@pytest.mark.parametrize("data", [b"", b'{"format":"aotkern.trace","version":3}\n', b"{}\n"])
def test_another_version_is_refused(data):
    with pytest.raises(IntegrityError, match=r"aotkern\.trace version 2"):
        Trace.parse(data, "t.jsonl")
