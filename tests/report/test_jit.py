"""The forms of a JIT report, made from hand-written events."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import jsonschema
import pytest

from aotkern import schemas
from aotkern.audit.jit.events import read
from aotkern.audit.jit.judge import JitReport, judge
from aotkern.report import jit as text
from aotkern.report import jit_machine as machine
from aotkern.triton_bridge.budget import Budget, PhaseBudget

TRITON = {
    "event": "triton",
    "at": 1,
    "rank": 0,
    "phase": "startup",
    "version": "3.9.0",
    "watched": ["hooks"],
    "missing": [],
}
PROCESS = {"event": "process", "format": "aotkern.jit-events/1", "at": 0, "pid": 7, "parent": 1, "forked_from": None}


def started(number: int, kernel: str, n: str, phase: str = "serving", value: str = "16") -> dict[str, Any]:
    return {
        "event": "start",
        "id": number,
        "at": 10 + number,
        "route": "jit",
        "phase": phase,
        "rank": 0,
        "thread": 1,
        "kernel": kernel,
        "module": "program",
        "key": f"{kernel}[hip:gfx942](x:*fp32:DS,n{n})",
        "arguments": [["x", ":*fp32:DS"], ["n", n]],
        "options": {"num_warps": "4"},
        "stack": ["program:step:12"],
        "constexprs": [],
        "unspecialised": [],
        "values": {"x": {"address": 4096, "storage": 64, "shape": [16]}, "n": value},
        "heuristic": [],
        "tuned": [],
    }


def ended(number: int, seconds: float) -> dict[str, Any]:
    return {"event": "end", "id": number, "at": 20 + number, "seconds": seconds, "outcome": "compiled"}


def made(kernels: int = 1, budget: int | None = 0) -> JitReport:
    events = [{**PROCESS, "host": "h", "command": "serve", "python": "3.11"}, TRITON]
    for number in range(kernels):
        events += [started(2 * number, f"k{number}", ":i32:D", "startup"), ended(2 * number, 1.0 + number)]
        events += [started(2 * number + 1, f"k{number}", ":i32", value="37"), ended(2 * number + 1, 2.0 + number)]
    events += [
        {"event": "tune-start", "id": 1, "at": 90, "rank": 0, "phase": "serving", "kernel": "k0", "module": "program"}
        | {"tuning_key": {"n": "16"}, "configs": 2, "stack": []},
        {
            "event": "tune-end",
            "id": 1,
            "at": 91,
            "rank": 0,
            "phase": "serving",
            "seconds": 0.5,
            "best": "a",
            "error": None,
        },
    ]
    schema = jsonschema.Draft202012Validator(schemas.load("jit-event"))
    for event in events:
        schema.validate(event)
    phases = () if budget is None else (PhaseBudget("serving", compiles=budget, retunes=budget),)
    return judge(read([events]), Budget("observe", phases))


@pytest.mark.parametrize("kernels", [0, 1, 50])
def test_the_summary_has_at_most_twenty_lines_of_bounded_width(kernels):
    lines = text.summary(made(kernels)).splitlines()
    assert len(lines) <= text.LINES
    assert max(map(len, lines)) <= 160
    assert lines[-1] == "jit: findings"


def test_the_summary_puts_what_exceeds_first_and_says_why():
    lines = text.summary(made(3)).splitlines()
    rows = [line for line in lines if ": k" in line]
    assert rows[0].startswith("OVER serving: k2, 1 compile, 4.00 s: n: multiple of 16 -> other (n=37)")
    assert "3 compiles" not in lines[0]


def test_a_run_without_a_budget_is_clean():
    assert text.summary(made(1, budget=None)).splitlines()[-1] == "jit: clean"


def test_the_json_fits_its_schema_and_is_complete():
    document = machine.json_document(made(3))
    jsonschema.Draft202012Validator(schemas.load("jit")).validate(document)
    assert sum(len(row["events"]) for row in document["kernels"]) == 6
    assert [finding["subject"] for finding in document["findings"]] == ["k2", "k1", "k0", "k0"]
    assert json.loads(json.dumps(document)) == document


def test_markdown_gives_advice_and_the_lines_to_declare():
    page = text.markdown(made(1))
    assert "| serving | k0 | 1 | 1 | 1 | 2.00 s | n: multiple of 16 -> other (n=37) |" in page
    assert 'Space(("hip:gfx942",), {"x": Pointer("fp32"), "n": Int("i32", classes=("any",))}),' in page
    assert "do_not_specialize" in page


def test_junit_fails_what_exceeds_its_budget():
    suite = ET.fromstring(machine.junit(made(2)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "3", "0")
    failures = suite.findall("testcase/failure")
    assert failures[0].get("message") == "phase serving allows 0 compiles, 2 happened"


def test_junit_of_an_audit_that_could_not_tell_is_an_error():
    suite = ET.fromstring(machine.junit(judge(read([]), Budget())))
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert suite.find("testcase/error").get("message") == "no watched process imported Triton"


def test_prometheus_counts_by_kernel_phase_and_outcome():
    lines = machine.prometheus(made(1)).splitlines()
    labels = 'phase="serving",kernel="k0",module="program"'
    assert f'aotkern_jit_compiles{{{labels},outcome="compiled"}} 1' in lines
    assert f"aotkern_jit_over_budget{{{labels}}} 1" in lines
    assert f"aotkern_jit_retunes{{{labels}}} 1" in lines
    assert "aotkern_jit_watched 1" in lines
    assert len([line for line in lines if line.startswith("# TYPE")]) == 5
