"""Small valid inputs of every parser, made by the project's own writers; and one built kernel, for what needs code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from making import GFX942, SCALE, SM90, built, edited, packed, written
from vouching import bundle, key, key_table, rule_table, sealed, statement, trust_text

from aotkern import codeobject
from aotkern.audit.policy_example import EXAMPLE
from aotkern.bench import Bar, Machine, Measurement, Row, Run, Table
from aotkern.build.builder import Compilation
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.distribution.artifact import Artifact, Index
from aotkern.distribution.remote import Package
from aotkern.lock import Lock
from aotkern.spec import Constant, VariantKey
from aotkern.trace import Chosen, Recorded, Trace, Unbuildable
from aotkern.trust.memory import FORMAT

FILE = "pack.gfx942.aotk"
PLAIN = bundle()
"""A bundle without kernels: what trust looks at is its bytes."""
ONE, TWO, STRANGER = key(1), key(2), key(3)
TRUST = trust_text(
    key_table("a", ONE), key_table("b", TWO), rule_table("a b", threshold=2), revoked=[str(Digest.of(b"old"))]
)
PAYLOAD = statement(PLAIN)
SIGNATURES = sealed(PAYLOAD, ONE, TWO)
ONE_EACH = sealed(PAYLOAD, ONE) + sealed(PAYLOAD, TWO) + sealed(PAYLOAD, STRANGER)
MEMORY = json.dumps(
    {
        "format": FORMAT,
        "newest": {"pack hip:gfx942": {"sequence": 7, "statement": str(Digest.of(PAYLOAD))}},
    }
).encode()
PEM, SEALED_PEM = ONE.to_pem(None), ONE.to_pem(b"secret")


def _pem_of_x448() -> bytes:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.x448 import X448PrivateKey

    private = X448PrivateKey.generate()
    return private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


X448_PEM = _pem_of_x448()
REPORT = {"schema": "aotkern.identity/1", "verdict": "clean", "target": "hip:gfx942", "rows": []}
STEP = {"name": "numerics", "verdict": "clean", "report": {"target": "hip:gfx942"}}
GATE = {"schema": "aotkern.gate/1", "verdict": "clean", "steps": [STEP, {**STEP, "report": None}]}
REPORTS = tuple(
    json.dumps(value).encode()
    for value in (REPORT, GATE, {"schema": "aotkern.audit/1", "verdict": "clean", "reports": [REPORT, REPORT]})
)
POLICY = EXAMPLE.encode()
WORKLOAD = b"""version = 1
name = "8 in"
server = "pkg.server"
[requests]
input = 8
output = 2
range_ratio = 0.8
seed = 0
warmup = 1
scored = 2
concurrency = 2
[scheduler]
batched_tokens = 16
sequences = 2
captured_rows = [1, 2]
[settings]
heads = 16
[[sweep]]
prompts = [1, 2]
[arms.bundle]
target = "gfx942"
kind = "bundle"
settings = { design = "x", gather = false }
"""
BUDGET = b"""version = 1
mode = "warn"
[phases.serving]
compiles = 0
retunes = 0
[phases.serving.kernels]
"cp_*" = 1
"""
DOMAIN = b"""version = 1
[[call]]
kernel = "scale"
options = { num_warps = 4 }
[call.arguments]
x = { tensor = ["fp32"], aligned = "both", storage = "small" }
y = { tensor = "fp32", aligned = true }
n = { from = 1, to = 4096, step = 16 }
shape = { tuple = [{ from = 1, to = 64 }, { float = true }] }
mask = { none = true }
BLOCK = { values = [64, "x", 1.5, true, [1, 2]] }
TOKENS = { unbounded = true }
"""
LOCK = json.dumps(Lock.of([Bundle.decode(PLAIN, FILE)]).to_json()).encode()
VARIANT = 'pkg.mod.add[hip:gfx942](x:*fp32:DS,n:i32:D,t=(1,"a",None),g(:*bf16,:i64),f=1.5,B=64){num_warps=8}'
_SOURCE = Digest.of(b"source")
ROWS = (
    Recorded(VariantKey.parse(VARIANT), "pkg.mod", _SOURCE, ("B",), ("B",), triton="3.9.0", reads=(("m:N", "3"),)),
    Chosen("pkg.mod.add", _SOURCE, "hip:gfx942", ("1024", '"x"'), (("B", "64"), ("num_warps", "8"))),
    Unbuildable("a.b.c", "cuda:90", "no build can express it"),
)
TRACE = Trace.of(ROWS).to_bytes()
RECORDED = b"".join(json.dumps(row.to_json()).encode() + b"\n" for row in ROWS)
ARTIFACT = Artifact.of(
    Package("pack", GFX942, PLAIN, SIGNATURES, Bundle.decode(PLAIN, FILE).manifest.digest),
)
INDEX = Index((ARTIFACT.entry(),)).to_bytes()
CONSTANTS = (
    *map(str, map(Constant.of, (1, -7, 1.5, float("inf"), float("nan"), True, None, "a b", "\n"))),
    *map(str, map(Constant.of, ((1,), ((1, 2), "x", ()), 2**70))),
)
TARGETS = ("gfx942", "hip:gfx950", "cuda:90", "gfx942:xnack+", "hip:gfx942:sramecc+:xnack-")
REFERENCES = ("host:5000/team/repo:tag", f"registry.example/a/b@{Digest.of(b'x')}")
START = {
    "event": "start",
    "id": 1,
    "at": 10,
    "route": "jit",
    "phase": "serving",
    "rank": 0,
    "thread": 1,
    "kernel": "k",
    "module": "program",
    "key": "k[hip:gfx942](x:*fp32:DS,n:i32)",
    "options": {"num_warps": "4"},
    "arguments": [["x", ":*fp32:DS"], ["n", ":i32"]],
    "stack": ["program:step:12"],
    "constexprs": ["B"],
    "values": {"x": {"address": 4096, "storage": 64, "shape": [16]}, "n": "16", "t": ["1", "2"]},
    "unspecialised": [],
    "heuristic": ["B"],
    "tuned": ["num_warps"],
}
_AT = {"at": 1, "rank": None, "phase": "startup"}
_EVENTS = (
    {"event": "process", "format": "aotkern.jit-events/1", "at": 0, "pid": 7, "host": "h", "command": "serve"},
    {"event": "triton", "version": "3.9.0", "watched": ["hooks"], "missing": [], **_AT},
    START,
    {"event": "end", "id": 1, "at": 20, "seconds": 1.5, "outcome": "compiled", "object": "sha256:00"},
    {**START, "id": 2, "key": "k[hip:gfx942](x:*fp32:D,n:i32:D)", "arguments": [["x", ":*fp32:D"], ["n", ":i32:D"]]},
    {"event": "end", "id": 2, "at": 21, "seconds": 2, "outcome": "failed", "error": "no memory", "lost": 1},
    {
        "event": "tune-start",
        "id": 1,
        "kernel": "k",
        "module": "program",
        "tuning_key": {"n": "16"},
        "configs": 2,
        **_AT,
    },
    {"event": "tune-end", "id": 1, "at": 91, "seconds": 0.5, "best": "a"},
    {"event": "foreign", "system": "tilelang", **_AT},
    {"event": "fault", "at": 3, "message": "lost"},
)
EVENTS = b"".join(json.dumps(event).encode() + b"\n" for event in _EVENTS)
DENY = b"sha256:0123456789ab\n0123456789abcdef\n" + VARIANT.encode()
BENCH = (
    Run(
        benchmark="launch",
        command="python -m benchmarks launch",
        date="2025-01-31T12:00:00Z",
        load=0.25,
        seconds=12.5,
        machine=Machine("A Processor", 2, 16 << 30, "A GPU", "575.1"),
        versions=(("aotkern", "0.1.0"),),
        tables=(Table("t", ("a", "b"), (Row("r", (Measurement.of("us", [3.25, 3.5, 3.0], (90,)),), "note"),)),),
        bars=(Bar("over", "x", 1.5, True, 1.44), Bar("under", "x", 3, False, None, "no GPU")),
        notes=("a note",),
    )
    .dumps()
    .encode()
)


@dataclass(frozen=True)
class Code:
    """A kernel that was built for gfx942 and cuda:90 in a folder."""

    folder: Path

    @cached_property
    def _build(self) -> Compilation:
        text = edited(SCALE, ('("gfx942", "gfx950"),\n            {"x"', '("gfx942", "cuda:90"),\n            {"x"'))
        return built(written(self.folder, text, "fuzzed_scale.py"), GFX942, SM90)

    @cached_property
    def bundle(self) -> bytes:
        """The bundle for gfx942."""
        return packed(self._build.targets[GFX942], {"compressor": "zstd"})

    @cached_property
    def manifest(self) -> bytes:
        """The bytes of its manifest."""
        return Bundle.decode(self.bundle, "x").manifest_bytes()

    @cached_property
    def hsaco(self) -> bytes:
        """A code object of gfx942."""
        return next(iter(self._build.targets[GFX942].objects.values()))

    @cached_property
    def cubin(self) -> bytes:
        """A code object of cuda:90."""
        return next(iter(self._build.targets[SM90].objects.values()))

    @cached_property
    def text(self) -> bytes:
        """The machine code of the gfx942 kernel."""
        return codeobject.section_bytes(self.hsaco, ".text", "x")
