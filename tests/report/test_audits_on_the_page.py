"""What the JIT, coverage and numerics audits contribute to a page."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import reports_made as made

from aotkern import schemas
from aotkern.audit.coverage.proof import CoverageReport, Gap, KernelCoverage
from aotkern.audit.examining import Coverage
from aotkern.audit.examining import Outcome as Numbers
from aotkern.audit.findings import Verdict
from aotkern.audit.jit.events import Compile, Log, Outcome, Process, Tuning
from aotkern.audit.jit.judge import judge
from aotkern.audit.numerics import NOT_SAID, Counts, NumericsReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.emulator.reach import Gap as Unexecuted
from aotkern.report import formats, html, jit_page, markdown
from aotkern.report.contributions import contribution, page
from aotkern.report.numerics import machine
from aotkern.report.page import Bar, Cell, Grid, Table, Timeline, Tone
from aotkern.target import Target
from aotkern.triton_bridge.budget import Budget, PhaseBudget

KEY = "scale[hip:gfx942](n:i32){num_warps=4}"


def compiled(at, phase, rank, seconds):
    return Compile(
        process=rank, at=at, route="jit", phase=phase, rank=rank, kernel="scale", module="m", key=KEY,
        outcome=Outcome.COMPILED, seconds=seconds,
    )  # fmt: skip


LOG = Log(
    processes=(Process(1, "here", "serve", ("3.9.0",)),),
    compiles=(compiled(5_000_000_000, "startup", 0, 0.5), compiled(6_000_000_000, "serving", 1, 0.25)),
    tunings=(Tuning(0, 5_500_000_000, "startup", 0, "mix", "m", {"n": "1"}, 8, 0.75, "config"),),
)


def test_a_jit_audit_is_a_timeline_that_starts_with_its_first_event():
    report = judge(LOG, Budget(phases=(PhaseBudget("serving", compiles=0),)))
    timeline, kernels, tunings = contribution(report).blocks
    assert isinstance(timeline, Timeline)
    assert timeline.bars == (
        Bar("rank 0", 0.0, 0.5, "startup", f"{KEY}: compiled, by jit"),
        Bar("rank 0", 0.5, 0.75, "startup", "mix: tuned over 8 configurations"),
        Bar("rank 1", 1.0, 0.25, "serving", f"{KEY}: compiled, by jit"),
    )
    assert (timeline.lanes, timeline.phases, timeline.length) == (("rank 0", "rank 1"), ("startup", "serving"), 1.25)
    assert [row[:5] for row in kernels.rows] == [
        ("startup", "scale", "1", "1", "0.500"),
        ("serving", "scale", "1", "1", "0.250"),
    ]
    assert [row[5] for row in kernels.rows] == ["within the budget", report.rows[1].excess]
    assert isinstance(tunings, Table)
    assert tunings.rows[0][:4] == ("startup", "mix", "1", "0.750")


def test_a_run_without_compiles_shows_no_empty_drawing():
    assert contribution(judge(Log(processes=LOG.processes), Budget())).blocks == ()


def test_a_jit_audit_fits_every_report():
    report = judge(LOG, Budget(phases=(PhaseBudget("serving", compiles=0),)))
    gate = GateReport("audit jit", (StepResult.of("jit", "serve", report, 2.0),))
    assert gate.verdict is Verdict.FINDINGS
    assert "phase-1" in html.render(gate)
    assert "Compiles and tunings over time" in jit_page.render(report)
    assert "phase serving allows 0 compiles, 1 happened" in markdown.render(gate)
    assert report.summary == "compiles by phase: startup 1, serving 1; tunings: 1; findings: 1"


def test_a_replay_is_a_map_and_a_timeline_of_steps():
    chart, timeline = contribution(made.replayed()).blocks
    assert chart.cells == {
        ("scale", "capture"): Cell("1 compile in 2,500 launches", Tone.NOTICE),
        ("scale", "scored"): Cell("3 compiles in 2,500 launches", Tone.BAD),
        ("mix", "scored"): Cell("none in 2,500 launches", Tone.GOOD),
    }
    assert timeline.bars == (
        Bar("all steps", 0, 2, "capture", "2 steps"),
        Bar("all steps", 2, 3, "warmup", "3 steps, 1 of which replay a graph"),
        Bar("all steps", 5, 1000, "scored", "1,000 steps, 990 of which replay a graph"),
        Bar("scale", 1, 1, "capture", "scale: 1 compile"),
        Bar("scale", 7, 1, "scored", "scale: 3 compiles"),
    )
    drawn = html.render(GateReport("p", (StepResult.of("replay", "b", made.replayed(), 0.1),)))
    assert "<span>1,005 steps</span>" in drawn
    assert "scale: 3 compiles: scored, 1 steps from 7" in drawn


def test_a_replay_of_a_bundle_lists_the_calls_that_nothing_serves():
    *_, gaps = contribution(made.replayed("bundle")).blocks
    assert gaps.rows == (
        ("scored", "scale", "n = 17", made.key("scale", made.GFX942), "n: i32:D is needed; declare n as any"),
    )
    nearest = made.key("scale", made.GFX942)
    (finding,) = made.replayed("bundle").findings
    assert (finding.subject, finding.state) == ("scale", "no variant")
    assert finding.message == (
        f"no variant serves a call in phase scored; nearest: {nearest}, differs in: n: i32:D is needed (declare n as any)"
    )
    text = (
        "7,500 launches, 2,500 of them by 1 prebuilt variant; would compile: capture 1, warmup 0, scored 3 (at most 0)"
    )
    assert made.replayed("bundle").summary == f"a workload: {text}"


def test_a_bound_on_what_was_not_launched_shows_nothing_unless_another_is_exceeded():
    assert made.replayed(bounds={"capture": 1}).verdict is Verdict.CLEAN
    idle = made.replayed(bounds={"capture": 1, "warmup": 0})
    assert (idle.verdict, idle.findings) == (Verdict.UNKNOWN, ())
    assert "in phase warmup" in idle.summary
    assert made.replayed(bounds={"warmup": 0, "scored": 2}).verdict is Verdict.FINDINGS


def numerics():
    good = Numbers(KEY, "small", 0, "", {"out": (1e-6, 2e-7)}, "", ("lockstep", "reverse"), 8)
    bad = Numbers(KEY.replace("scale", "mix"), "small", 0, "out differs at 3", {"out": (1.0, 0.5)})
    blind = Numbers(KEY.replace("scale", "odd"), "small", 0, "", {}, "nothing is compared", ("lockstep",))
    return NumericsReport(
        Target.parse("gfx942"),
        "emulator",
        (good, bad, blind),
        {"scale": Counts(1, 2), "mix": Counts(1, 1), "odd": Counts(1, 1), "none": Counts(0, 3)},
        {"scale": (KEY.replace("4", "8"),)},
        ("none",),
        ("lockstep", "reverse"),
        {KEY: Coverage(98, 100, (Unexecuted(16, 24, 2, "s_nop 0"),))},
        0.99,
    )


def test_the_numerics_audit_says_of_each_variant_whether_it_computes_right():
    shown = page(GateReport("p", (StepResult.of("numerics", "b", numerics(), 1.0),)))
    states = {row.kernel: [(state.text, state.tone) for state in row.states] for row in shown.variants}
    assert states == {
        "scale": [("not executed: left out", Tone.UNKNOWN)],
        "mix": [("wrong numbers", Tone.BAD)],
        "odd": [("numbers: could not tell", Tone.UNKNOWN)],
    }
    kernels, worst, never, left_out, said = shown.sections[0].blocks
    assert kernels.rows[0] == ("scale", "1", "2", "1", "0", "0", "98.0 %", "2.0e-07")
    assert [row[3:] for row in worst.rows] == [("1.00e+00", "5.00e-01"), ("1.00e-06", "2.00e-07")]
    assert never.rows == ((KEY, "98.0 % of 100 instructions ran: not 0x10 s_nop 0 and 1 more up to 0x18"),)
    assert left_out.rows == ((KEY.replace("4", "8"),),)
    assert said.rows == ((NOT_SAID,),)
    assert numerics().summary == (
        "hip:gfx942 on emulator: 3 of 7 code objects, 3 cases in orders lockstep, reverse, wrong 1, could not tell 1; "
        "98.0 % of instructions ran; no cases for none"
    )
    assert machine(numerics())["verdict"] == "findings"


def test_what_a_numerics_audit_could_not_tell_stands_apart_in_every_report():
    gate = GateReport("p", (StepResult.of("numerics", "b", numerics(), 1.0),))
    document = json.loads(formats.of(Path("x.json"))(gate))
    jsonschema.validate(document, schemas.load("gate"))
    (step,) = document["steps"]
    assert [finding["state"] for finding in step["findings"]] == ["wrong", "too little executed"]
    assert [finding["message"] for finding in step["unknown"]] == [
        "small, seed 0: nothing is compared",
        "no cases are declared",
    ]
    assert step["skipped"] == [KEY.replace("4", "8")]
    assert step["report"]["counts"] == {"right": 1, "wrong": 1, "could not tell": 1}
    for ending in (".html", ".md", ".xml", ".sarif", ".txt"):
        shown = formats.of(Path(f"x{ending}"))(gate)
        assert "3 of 7 code objects" in shown, ending
        assert "nothing is compared" in shown, ending
    suite = ET.fromstring(formats.of(Path("x.xml"))(gate)).find("testsuite")
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["3", "2", "1"]
    notes = json.loads(formats.of(Path("x.sarif"))(gate))["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert [note["level"] for note in notes] == ["error", "error", "note", "note"]


def coverage():
    gap = Gap(3, "n = 17", KEY, ("n: i32:D is needed",), ("declare n as any",))
    kernels = (KernelCoverage("scale", 8, 5, (gap,)), KernelCoverage("mix", 4, 4))
    return CoverageReport("b.aotk", "hip:gfx942", "calls.toml", kernels)


def test_the_coverage_audit_is_a_map_and_its_gaps():
    chart, gaps = contribution(coverage()).blocks
    assert isinstance(chart, Grid)
    assert chart.cells == {
        ("scale", "hip:gfx942"): Cell("5 of 8 calls", Tone.BAD),
        ("mix", "hip:gfx942"): Cell("4 of 4 calls", Tone.GOOD),
    }
    assert gaps.rows == (("scale", "3", "n = 17", KEY, "n: i32:D is needed"),)
    assert coverage().summary == "hip:gfx942: 9 of 12 calls of calls.toml find a variant"
    (finding,) = coverage().findings
    assert (finding.subject, finding.state) == ("scale", "not covered")
    assert finding.message == "3 calls, such as n = 17: n: i32:D is needed; declare n as any"


def test_a_full_coverage_has_no_table_of_gaps():
    report = CoverageReport("b.aotk", "hip:gfx942", "calls.toml", (KernelCoverage("mix", 4, 4),))
    assert [block.kind for block in contribution(report).blocks] == ["grid"]
    assert "4 of 4 calls" in html.render(GateReport("p", (StepResult.of("coverage", "b", report, 0.1),)))


def test_every_audit_has_its_document_in_the_gate():
    reports = {"jit": judge(LOG, Budget()), "numerics": numerics(), "coverage": coverage(), "replay": made.replayed()}
    gate = GateReport("p", tuple(StepResult.of(name, "s", report, 0.1) for name, report in reports.items()))
    document = json.loads(formats.of(Path("x.json"))(gate))
    jsonschema.Draft202012Validator(schemas.load("gate")).validate(document)
    assert [step["report"]["schema"] for step in document["steps"]] == [f"aotkern.{name}/1" for name in reports]
