"""Reports made by hand for the renderers: a full one with every kind of outcome, hostile names, and a large one."""

from __future__ import annotations

from pathlib import Path

from aotkern.audit.contents import ContentsReport, KernelContents
from aotkern.audit.coverage.proof import Gap
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.identity import Comparison, IdentityReport, State
from aotkern.audit.jit.events import Log
from aotkern.audit.jit.judge import judge
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.replay.arms import Met
from aotkern.audit.replay.drive import ArmResult
from aotkern.audit.replay.judge import ReplayReport
from aotkern.audit.replay.workload import Arm
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.audit.resources import ResourceReport, Usage
from aotkern.digest import Digest
from aotkern.target import Target
from aotkern.triton_bridge.budget import Budget

GFX942, GFX950 = Target.parse("gfx942"), Target.parse("gfx950")

HOSTILE = (
    "<script>alert(1)</script>\"'`--> @somebody #1 [x](http://evil.example/a) ![i](//evil.example/b)|| </details>\n## h"
)
"""A name with what HTML, Markdown, XML and a job summary could be tricked by."""

USAGE = Usage(
    vgprs=24, agprs=0, sgprs=20, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=1024, waves=8, code_bytes=640
)

INSTRUCTIONS = [
    [None, None],
    ["s_nop 0", "s_nop 0"],
    ["v_mul_f32_e32 v2, 0x40400000, v2", "v_mul_f32_e32 v2, 0x40a00000, v2"],
    [None, "v_add_f32_e32 v2, 1.0, v2"],
    ["s_endpgm", "s_endpgm"],
]


def key(kernel: str, target: Target, number: int = 0) -> str:
    return f"{kernel}[{target}](x:*fp32:D,out:*fp32:D,n:i32:D,BLOCK={64 << number}){{num_warps=4}}"


def identity(*comparisons: Comparison, obstacle: str = "") -> IdentityReport:
    return IdentityReport(str(GFX942), "manifests/gfx942.json", "out/some.gfx942.aotk", comparisons, obstacle)


DIFFERENCE = {
    "sections": [".note", ".text"],
    "first_difference": ".text at byte 0x40",
    "resources": {"vgprs": [24, 32], "code_bytes": [640, 652]},
    "instructions": INSTRUCTIONS,
}


def full() -> GateReport:
    """A gate with a clean step, findings of several kinds, and a step that could not tell."""
    compared = identity(
        Comparison(key("scale", GFX942), State.IDENTICAL, False, {}),
        Comparison(key("scale", GFX942, 1), State.IDENTICAL, True, {}),
        Comparison(key("mix", GFX942, 0), State.DIFFERENT, True, DIFFERENCE),
        Comparison(key("mix", GFX942, 1), State.DIFFERENT, True, DIFFERENCE),
        Comparison(key("gone", GFX942), State.MISSING, False, {}),
    )
    used = {key("scale", GFX950, n): USAGE for n in range(3)} | {key("wide", GFX950): USAGE}
    exceeded = Finding("resources", key("wide", GFX950), "out of bounds", "vgprs: 24 > 16", {"bound": "vgprs"})
    bounded = ResourceReport(GFX950, used, (exceeded,), {key("scale", GFX950, 2): {"vgprs": (20, 24)}}, 2)
    rebuilt = ReproducibleReport(
        {"hip:gfx942": Digest.of(b"a")},
        {},
        ("folder", "order"),
        "",
        3,
        {key("scale", GFX942, n): 0.1 * n for n in range(3)},
    )
    held = ContentsReport(
        "hip:gfx942", Digest.of(b"m"), 12_345, (KernelContents("scale", 2, 1, 4096, 640),), {"triton": "3.9.0"}, {}
    )
    reports = (
        ("verify", "out/some.gfx942.aotk", held, "out/some.gfx942.aotk"),
        ("identity", "out/some.gfx942.aotk", compared, "manifests/gfx942.json"),
        ("resources", "out/some.gfx950.aotk", bounded, "kernels/wide here.py"),
        ("reproducible", "shipped kernels", rebuilt, ""),
    )
    steps = [StepResult.of(name, subject, report, 0.25, place) for name, subject, report, place in reports]
    unknown = StepResult("identity", "out/other.aotk", Verdict.UNKNOWN, 0.0, "absent: expected a bundle\nsecond: line")
    return GateReport("audits/policy.toml", (*steps, unknown))


def hostile() -> GateReport:
    """Every text in it is `HOSTILE`."""
    text = HOSTILE
    details = {"sections": [text], "reason": text, "resources": {text: [text, text]}, "instructions": [[text, None]]}
    compared = IdentityReport(
        text, text, text, (Comparison(f"{text}[{text}]({text})", State.DIFFERENT, True, details),)
    )
    finding = Finding(text, text, text, text, {text: text})
    held = ContentsReport(text, Digest.of(b""), 1, (KernelContents(text, 1, 1, 1, 1),), {text: text}, {text: text})
    return GateReport(
        text,
        (
            StepResult.of(text, text, compared, 0.1, text),
            StepResult.of(text, text, held, 0.1, text),
            StepResult(text, text, Verdict.FINDINGS, 0.1, text, (finding,), None, text),
        ),
    )


def large(variants: int = 2000) -> GateReport:
    """A gate over this many variants, each read by two audits, with differences in every tenth."""
    keys = [
        f"kernel_{n % 20}[{(GFX942, GFX950)[n % 2]}](x:*bf16:DS,out:*fp32:D,n:i32:D,m:i32,WIDTH={n}){{num_warps=4}}"
        for n in range(variants)
    ]
    compared = identity(
        *(
            Comparison(key, State.DIFFERENT, True, {**DIFFERENCE, "reason": f"of {n}"})
            if n % 10 == 0
            else Comparison(key, State.IDENTICAL, False, {})
            for n, key in enumerate(keys)
        )
    )
    bounded = ResourceReport(GFX942, dict.fromkeys(keys, USAGE), (), {}, 1)
    steps = (StepResult.of("identity", "a", compared, 1.0, "m"), StepResult.of("resources", "b", bounded, 1.0, "m"))
    return GateReport("audits/policy.toml", steps)


PHASES = {"capture": (2, 0), "warmup": (3, 1), "scored": (1000, 990)}


def replayed(kind="jit", bounds=None):
    """An arm whose kernel compiles in step 1, in a graph capture, and three times in step 7, while scored."""
    arm = Arm("an arm", GFX942, kind, {})
    met = (Met(1, "capture", "scale"), *[Met(7, "scored", "scale")] * 3)
    gap = Gap(1, "n = 17", key("scale", GFX942), ("n: i32:D is needed",), ("declare n as any",))
    places = [("capture", "scale"), ("scored", "scale"), ("scored", "mix")]
    missed = kind == "bundle"
    result = ArmResult(
        arm=arm, kernels=("mix", "scale"), binaries={places[0]: 1, places[1]: 3}, launches=dict.fromkeys(places, 2_500),
        steps=PHASES, report=judge(Log(), Budget()), gaps={places[1]: (gap,)} if missed else {},
        served={("mix", "k"): 2_500} if missed else {}, met=met,
    )  # fmt: skip
    return ReplayReport("a workload", result, {"scored": 0} if bounds is None else bounds)


def saved(folder: Path, text: str, name: str = "report.html") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path
