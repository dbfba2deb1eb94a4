"""What the JIT, coverage and numerics audits contribute to a page."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import reports_made as made

from aotkern import schemas
from aotkern.audit.coverage.proof import CoverageReport, Gap, KernelCoverage
from aotkern.audit.findings import Verdict
from aotkern.audit.jit.events import Compile, Log, Outcome, Process, Tuning
from aotkern.audit.jit.judge import judge
from aotkern.audit.numerics import NumericsReport
from aotkern.audit.numerics import Outcome as Numbers
from aotkern.audit.outcome import GateReport, StepResult
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
    good = Numbers(KEY, "small", 0, "", {"out": (1e-6, 2e-7)})
    bad = Numbers(KEY.replace("scale", "mix"), "small", 0, "out differs at 3", {"out": (1.0, 0.5)})
    return NumericsReport(Target.parse("gfx942"), "emulator", (good, bad), {}, ())


def test_the_numerics_audit_says_of_each_variant_whether_it_computes_right():
    shown = page(GateReport("p", (StepResult.of("numerics", "b", numerics(), 1.0),)))
    states = {row.kernel: [(state.text, state.tone) for state in row.states] for row in shown.variants}
    assert states == {
        "scale": [("computes right (emulator)", Tone.GOOD)],
        "mix": [("wrong numbers", Tone.BAD)],
    }
    (worst,) = shown.sections[0].blocks
    assert [row[3:] for row in worst.rows] == [("1.00e+00", "5.00e-01"), ("1.00e-06", "2.00e-07")]
    assert numerics().summary == "hip:gfx942 on emulator: variants 2, cases 2, wrong 1"
    assert machine(numerics())["verdict"] == "findings"


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
