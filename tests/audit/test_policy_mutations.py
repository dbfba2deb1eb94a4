"""Ten thousand random changes to a policy: no crash, no hang, and nothing accepted that should not be.

A policy is text that people change, so that not every change can be refused. What "accepted" may mean is this:

- A policy that is read is understood whole: told again from what was read, it says exactly what TOML says that the
  file holds. Changes of comments, blanks and spellings leave the policy equal and count as no acceptance.
- Whatever a changed policy says, it does not make a gate pass where there is nothing good to pass.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gate_scratch import POLICY, QUIET
from mutations import damaged, edited, in_time

from aotkern.audit import gate
from aotkern.audit.findings import Verdict
from aotkern.audit.policy import Policy
from aotkern.audit.policy_example import EXAMPLE
from aotkern.errors import InputError, Problem
from aotkern.target import Target

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROUNDS = 10_000


def _numerics(step):
    return {
        "bundle": step.bundle,
        "cases": step.cases,
        "seed": step.seed,
        "most": step.most,
        "orders": step.orders or None,
        "coverage": step.coverage,
        "limit": step.limit,
        "timeout": step.timeout,
    }


def told(policy: Policy) -> dict[str, Any]:
    """What a policy says, as plain values: the inverse of reading, written apart from it."""
    steps: dict[str, Any] = {
        "identity": [{"bundle": s.bundle, "baseline": s.baseline, "only": s.only} for s in policy.identity],
        "resources": [
            {
                "bundle": s.bundle,
                "baseline": s.baseline,
                "rule": [
                    {
                        "kernel": rule.kernel,
                        "target": rule.target,
                        "variants": None if rule.variants == "*" else rule.variants,
                        "instructions": rule.instructions,
                        **rule.bounds,
                    }
                    for rule in s.rules
                ],
            }
            for s in policy.resources
        ],
        "reproducible": [{"kernels": s.kernels, "targets": s.targets} for s in policy.reproducible],
        "coverage": [{"bundle": s.bundle, "domain": s.domain} for s in policy.coverage],
        "numerics": [_numerics(s) for s in policy.numerics],
        "replay": [
            {"workload": s.workload, "arm": s.arm, "bundle": s.bundle, "compiles": s.compiles} for s in policy.replay
        ],
        "jit": [
            {
                "command": s.command,
                "budget": s.budget,
                "seconds": s.seconds,
                "ready_pattern": s.ready_pattern,
                "ready_file": s.ready_file,
                "bundles": s.bundles,
            }
            for s in policy.jit
        ],
    }
    return {"version": 1, "sources": policy.sources, "verify": {"bundles": policy.verify}, **steps}


PATHS = ("bundle", "bundles", "baseline", "domain", "workload", "budget", "ready_file")


def plain(value: object, name: str = "") -> Any:
    """Values in one spelling, without what is empty: paths as `Path` has them, targets in full."""
    if isinstance(value, Mapping):
        inner = {key: plain(item, key) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, [], {}, {"bundles": []})}
    if isinstance(value, (list, tuple)):
        return [plain(item, name) for item in value]
    if isinstance(value, str) and name in PATHS:
        return str(Path(value))
    if isinstance(value, str) and name == "variants":
        return None if value == "*" else value
    if isinstance(value, str) and name in ("target", "targets"):
        return str(Target.parse(value))
    return str(value) if isinstance(value, (Path, Target)) else value


def read(folder: Path, data: bytes) -> Policy | None:
    """The policy, or None where it was refused with a reason; any other end is a crash."""
    path = folder / "policy.toml"
    path.write_bytes(data)
    problems: tuple[Problem, ...] = ()
    policy = None
    try:
        with in_time(10):
            policy = Policy.read(path)
    except InputError as error:
        problems = error.problems
    assert all(problem.where.startswith(str(path)) for problem in problems)
    assert (policy is None) == bool(problems)
    return policy


def changed(text: str, chance: random.Random) -> bytes:
    return damaged(text.encode(), chance) if chance.random() < 0.5 else edited(text, chance).encode()


def test_a_policy_is_told_as_it_was_written(tmp_path: Path) -> None:
    for text in (EXAMPLE, POLICY):
        policy = read(tmp_path, text.encode())
        assert policy is not None
        assert plain(told(policy)) == plain(tomllib.loads(text))


def test_no_mutation_of_a_policy_is_read_as_something_else_than_it_says(tmp_path: Path) -> None:
    chance = random.Random(8)
    text = re.sub("(?m)^#.*\n", "", EXAMPLE).replace("\n\n", "\n# a comment\n", 4)
    original = plain(tomllib.loads(text))
    assert original == plain(tomllib.loads(EXAMPLE))
    tried = equal = different = 0
    while tried < ROUNDS:
        data = changed(text, chance)
        if data == text.encode():
            continue
        tried += 1
        policy = read(tmp_path, data)
        if policy is not None:
            says = plain(tomllib.loads(data.decode("utf-8")))
            assert plain(told(policy)) == says, data
            equal, different = (equal + 1, different) if says == original else (equal, different + 1)
    # Were everything refused at its first byte, nothing would have been tried.
    assert equal > ROUNDS // 50, equal
    assert different > ROUNDS // 50, different


COVERAGE = '\n[[coverage]]\nbundle = "out/small.gfx942.aotk"\ndomain = "calls.toml"\n'
DOMAIN = 'version = 1\n[[call]]\nkernel = "scale"\n[call.arguments]\nBLOCK = { values = [64] }\n'


@pytest.mark.parametrize("seed", range(2))
def test_no_mutation_of_a_policy_passes_where_there_is_nothing_good(repository: Path, seed: int) -> None:
    """Manifests are sound and both bundles damaged; `out` may be gone from a path, or a manifest named as a bundle."""
    for bundle in Path("out").iterdir():
        data = bytearray(bundle.read_bytes())
        data[-1] ^= 1
        bundle.write_bytes(data)
    Path("calls.toml").write_text(DOMAIN, "utf-8")
    text = POLICY + COVERAGE
    chance = random.Random(seed)
    run = 0
    for _ in range(ROUNDS // 2):
        policy = read(repository, changed(text, chance))
        if policy is None or policy.jit or policy.numerics or policy.reproducible or policy.replay:
            continue
        run += 1
        with in_time(60):
            assert gate.run(policy, "policy", QUIET).verdict is not Verdict.CLEAN, policy
    assert run > ROUNDS // 20
