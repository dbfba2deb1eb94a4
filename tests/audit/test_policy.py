"""The policy file: everything wrong is named with its place, and nothing is implied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.audit.policy import CoverageStep, IdentityStep, JitStep, NumericsStep, Policy, ReplayStep, ReproducibleStep
from aotkern.audit.policy_example import EXAMPLE
from aotkern.audit.resources import BOUNDS, Rule
from aotkern.errors import InputError, Problem
from aotkern.target import Target

GFX950 = Target.parse("gfx950")
REPLAY = '[[replay]]\nworkload = "w"\narm = "a"\n'
JIT = '[[jit]]\nbudget = "b"\n'
RULE = '[[resources]]\nbundle = "b"\n[[resources.rule]]\nkernel = "*"\ntarget = "gfx950"\n'


def parsed(text: str) -> Policy:
    return Policy.from_values(tomllib().loads(text), "p.toml")


def tomllib() -> Any:
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    return tomllib


def problems(text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        parsed(text)
    return {problem.where: (problem.expected, problem.found) for problem in caught.value.problems}


def test_the_example_that_init_writes_is_a_policy_with_every_step() -> None:
    policy = parsed(EXAMPLE)
    assert {item.name: len(getattr(policy, item.name)) for item in fields(policy)} == {
        "verify": 2,
        "identity": 1,
        "resources": 1,
        "reproducible": 1,
        "coverage": 1,
        "numerics": 1,
        "replay": 1,
        "jit": 1,
        "sources": 1,
    }
    assert policy.identity[0] == IdentityStep(Path("out/my_kernels.gfx942.aotk"), Path("manifests/gfx942.json"))
    assert policy.resources[0].rules == (Rule("*", GFX950, {"vgpr_spills": 0, "scratch_bytes": 0}),)
    assert policy.reproducible[0] == ReproducibleStep(("my_kernels.py",), (Target.parse("gfx942"), GFX950))
    assert policy.coverage[0] == CoverageStep(Path("out/my_kernels.gfx950.aotk"), Path("audits/calls.toml"))
    assert policy.numerics[0] == NumericsStep(
        Path("out/my_kernels.gfx950.aotk"), "my_cases.py", 0, None, ("lockstep", "reverse"), 0.9, 1_000_000_000, 600
    )
    compiles = {"capture": 0, "warmup": 0, "scored": 0}
    bundle = Path("out/my_kernels.gfx950.aotk")
    assert policy.replay[0] == ReplayStep(Path("audits/serving.toml"), "bundle", bundle, compiles)
    program, budget = ("python", "serve_once.py"), Path("audits/jit-budget.toml")
    assert policy.jit[0] == JitStep(program, budget, 600, "startup complete")


def test_a_rule_is_read_whole() -> None:
    (step,) = parsed(
        "version = 1\n"
        + RULE
        + 'variants = "*BLOCK=64*"\ninstructions = ["v_mfma_f32_16x16x16_f16|other"]\nwaves = 4\n'
    ).resources
    wanted = ("v_mfma_f32_16x16x16_f16|other",)
    assert step.rules == (Rule("*", GFX950, {"waves": 4}, "*BLOCK=64*", wanted),)
    assert step.baseline is None


@pytest.mark.parametrize("version", ["", "version = 2", 'version = "1"', "version = true", "version = 1.0"])
def test_only_the_known_version_is_read(version: str) -> None:
    assert "version = 1" in problems(version + '\n[verify]\nbundles = ["a"]\n')["p.toml: version"][0]


def test_a_policy_without_steps_is_refused() -> None:
    assert problems("version = 1") == {
        "p.toml": (
            "at least one step (verify, identity, resources, reproducible, coverage, numerics, replay, jit)",
            "none",
        )
    }
    assert problems("version = 1\n[verify]\nbundles = []") == {
        "p.toml: verify.bundles": ("at least one bundle", "none")
    }


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ('[verfy]\nbundles = ["a"]', "p.toml: verfy", "one of version, sources, verify"),
        ('sources = "kernels"\n[verify]\nbundles = ["a"]', "p.toml.sources", "a list of texts"),
        ('[[replay]]\nworkload = "w"\narm = "a"', "p.toml: replay[0].compiles", "a value"),
        (REPLAY + "compiles = {}", "p.toml: replay[0].compiles", "a bound for one of capture, warmup, scored"),
        (REPLAY + "compiles = { serving = 0 }", "p.toml: replay[0].compiles.serving", "one of capture, warmup, scored"),
        (REPLAY + "compiles = { scored = -1 }", "p.toml: replay[0].compiles.scored", "an integer from 0"),
        (REPLAY + "compiles = 0", "p.toml: replay[0].compiles", "a table with capture, warmup, scored"),
        (REPLAY + 'compiles = { scored = 0 }\nbundel = "b"', "p.toml: replay[0].bundel", "one of workload, arm"),
        (JIT + 'command = "python x"\nseconds = 1', "p.toml: jit[0].command", "a list of texts"),
        (JIT + "command = []\nseconds = 1", "p.toml: jit[0].command", "a program and its arguments"),
        (JIT + 'command = ["x"]\nseconds = 0', "p.toml: jit[0].seconds", "at least one second"),
        (JIT + 'command = ["x"]', "p.toml: jit[0].seconds", "a value"),
        (JIT + 'command = ["x"]\nseconds = 1\nready_pattern = "("', "p.toml: jit[0].ready_pattern", "a regular expr"),
        ('[verify]\nbundle = ["a"]', "p.toml: verify.bundle", "one of bundles"),
        ('[verify]\nbundle = ["a"]', "p.toml: verify.bundles", "a value"),
        ("[verify]\nbundles = [1]", "p.toml: verify.bundles", "a list of texts"),
        ('[verify]\nbundles = [""]', "p.toml: verify.bundles", "a list of texts that are not empty"),
        ("verify = 3", "p.toml: verify", "a table with bundles"),
        ('[identity]\nbundle = "a"', "p.toml: identity", "tables [[identity]]"),
        ('[[identity]]\nbundle = "a"', "p.toml: identity[0].baseline", "a value"),
        ('[[identity]]\nbundle = 7\nbaseline = "m"', "p.toml: identity[0].bundle", "a text that is not empty"),
        ('[[resources]]\nbundle = "a"', "p.toml: resources[0]", "a rule to hold or a baseline"),
        ('[[resources]]\nbundle = "a"\nrule = 3', "p.toml: resources[0].rule", "tables [[resources[0].rule]]"),
        (RULE, "p.toml: resources[0].rule[0]", "a bound (vgprs,"),
        (RULE + "vgpr = 3", "p.toml: resources[0].rule[0].vgpr", "vgprs"),
        (RULE + "vgprs = -1", "p.toml: resources[0].rule[0].vgprs", "an integer from 0"),
        (RULE + 'vgprs = "many"', "p.toml: resources[0].rule[0].vgprs", "an integer from 0"),
        (RULE + "vgprs = true", "p.toml: resources[0].rule[0].vgprs", "an integer from 0"),
        (RULE.replace("gfx950", "gfx1"), "p.toml: resources[0].rule[0].target", "a target"),
        ('[[reproducible]]\nkernels = ["k.py"]', "p.toml: reproducible[0].targets", "a value"),
        ('[[reproducible]]\nkernels = []\ntargets = ["sm_1"]', "p.toml: reproducible[0].targets", "a target"),
        ('[[coverage]]\nbundle = "a"', "p.toml: coverage[0].domain", "a value"),
        ('[[numerics]]\nbundle = "a"\ncases = "c"\nmost = 0\nseed = 0', "p.toml: numerics[0].most", "at least one"),
        ("[[reproducible]]\nkernels = []\ntargets = []", "p.toml: reproducible[0].targets", "at least one target"),
    ],
)
def test_a_problem_names_file_and_field(text: str, where: str, expected: str) -> None:
    found = problems("version = 1\n" + text)
    assert where in found, found
    assert expected in found[where][0]


def test_all_problems_come_at_once() -> None:
    text = 'version = 1\nextra = 1\n[[identity]]\nbundel = "a"\n' + RULE + "vgrps = 1\n"
    assert set(problems(text)) == {
        "p.toml: extra",
        "p.toml: identity[0].bundel",
        "p.toml: identity[0].bundle",
        "p.toml: identity[0].baseline",
        "p.toml: resources[0].rule[0].vgrps",
        "p.toml: resources[0].rule[0]",
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml: expected a policy that can be read, found No such file"):
        Policy.read(tmp_path / "absent.toml")
    for content in (b"version = ", b"\xff\xfe", b"a = 1\na = 2"):
        path = tmp_path / "damaged.toml"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"damaged\.toml: expected TOML"):
            Policy.read(path)


def schema() -> Any:
    return json.loads((resources.files("aotkern.schemas") / "policy.schema.json").read_text("utf-8"))


def test_the_schema_knows_the_same_names() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert set(schema()["$defs"]["rule"]["properties"]) == {"kernel", "target", "variants", "instructions", *BOUNDS}
    jsonschema.validate(tomllib().loads(EXAMPLE), schema())


LEAVES = (
    st.builds(list)
    | st.builds(dict)
    | st.just("a").map(lambda text: [text])
    | st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from(["", "gfx942", "a", "*"])
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from places(inner, (*path, name))


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """The example policy with up to three of its values replaced, removed or joined by another."""
    value: dict[str, Any] = tomllib().loads(EXAMPLE)
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(places(value)) or [("version",)]))
        inside: Any = value
        for name in path[:-1]:
            inside = inside[name]
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "remove":
            inside.pop(path[-1], None) if isinstance(inside, dict) else inside.pop(path[-1])
        elif what == "add" and isinstance(inside, dict):
            inside[
                draw(
                    st.sampled_from(
                        ["vgprs", "waves", "instructions", "variants", "bundle", "rule", "scored", "ready_file", "x"]
                    )
                )
            ] = draw(LEAVES)
        else:
            inside[path[-1]] = draw(LEAVES)
    return value


@given(changed())
def test_reader_and_schema_agree_on_every_value(value: dict[str, Any]) -> None:
    formats = jsonschema.FormatChecker(["regex"])
    fits = jsonschema.Draft202012Validator(schema(), format_checker=formats).is_valid(value)
    fits = fits and type(value["version"]) is int  # JSON has one kind of number
    found = found_in(value)
    assert (found == ()) == fits, (value, found)
    assert all(problem.where.startswith("p.toml") for problem in found)


def found_in(value: dict[str, Any]) -> tuple[Problem, ...]:
    try:
        Policy.from_values(value, "p.toml")
    except InputError as error:
        return error.problems
    return ()
