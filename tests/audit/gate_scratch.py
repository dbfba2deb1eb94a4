"""A scratch repository with kernels, golden manifests and a policy, for tests of the gate on changes to it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from aotkern.audit.steps import Circumstances
from aotkern.cli.commands import aotkern

QUIET = Circumstances(inherited={"PATH": os.environ["PATH"]})

HELPER = """\
import triton


@triton.jit
def activation(value):
    return value * 3
"""

KERNELS = """\
import triton
import triton.language as tl
from helper import activation

from aotkern.spec import Kernel, Pointer, Space


@triton.jit
def scale(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, activation(tl.load(x + place)))


@triton.jit
def only_gfx950(x, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(x + place, tl.load(x + place) + 1)


POINTER = Pointer("fp32", storage="any")
KERNELS = (
    Kernel(scale, Space(("gfx942", "gfx950"), {"x": POINTER, "out": POINTER, "BLOCK": 64}, options={"num_warps": 1})),
    Kernel(only_gfx950, Space(("gfx950",), {"x": POINTER, "BLOCK": 64}, options={"num_warps": 1})),
)
"""

POLICY = """\
version = 1

[verify]
bundles = ["out/small.gfx942.aotk", "out/small.gfx950.aotk"]

[[identity]]
bundle = "out/small.gfx942.aotk"
baseline = "manifests/gfx942.json"

[[resources]]
bundle = "out/small.gfx950.aotk"
baseline = "manifests/gfx950.json"

[[resources.rule]]
kernel = "*"
target = "gfx950"
vgprs = 16
vgpr_spills = 0
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(aotkern, arguments)


def build() -> None:
    done = run("build", "kernels_here.py", "-t", "gfx942", "-t", "gfx950", "--out", "out", "--name", "small", "-j", "1")
    assert done.exit_code == 0, (done.output, done.exception)


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def edit(path: str, *changes: tuple[str, str]) -> None:
    text = Path(path).read_text("utf-8")
    for old, new in changes:
        assert old in text, f"nothing to edit: {old!r}"
        text = text.replace(old, new)
    Path(path).write_text(text, "utf-8")


def asked(*, rebuilt: bool = True) -> tuple[int, dict[str, Any]]:
    """The gate's exit code and its steps' documents by name."""
    if rebuilt:
        git("commit", "--quiet", "--all", "-m", "A change")
        build()
    done = run("audit", "--json", "-j", "1")
    document = json.loads(done.output)
    return done.exit_code, {**document, "steps": {step["name"]: step for step in document["steps"]}}
