"""Budget files, and what counts against which budget."""

from __future__ import annotations

import json

import jsonschema
import pytest

from aotkern import schemas
from aotkern.audit.jit import budget as budgets
from aotkern.audit.jit.events import read
from aotkern.audit.jit.judge import judge
from aotkern.errors import InputError
from aotkern.triton_bridge.budget import Budget, PhaseBudget

TEXT = """
version = 1
mode = "error"
[phases.serving]
compiles = 0
retunes = 1
[phases.serving.kernels]
"cp_gather*" = 2
"""


def test_a_budget_file_says_what_each_phase_allows(tmp_path):
    path = tmp_path / "budget.toml"
    path.write_text(TEXT)
    budget = budgets.read(path)
    assert budget == Budget("error", (PhaseBudget("serving", 0, 1, (("cp_gather*", 2),)),))
    assert budget.of("serving").of("cp_gather_x") == ("cp_gather*", 2)
    assert budget.of("serving").of("reduce") == ("", 0)
    assert budget.of("startup") is None
    assert Budget.from_json(json.loads(json.dumps(budget.to_json()))) == budget


def test_the_schema_describes_the_file():
    schema = jsonschema.Draft202012Validator(schemas.load("jit-budget"))
    value = {"version": 1, "mode": "warn", "phases": {"serving": {"compiles": 0, "kernels": {"a*": 1}}}}
    schema.validate(value)
    assert budgets.from_values(value, "x").of("serving").kernels == (("a*", 1),)
    assert not schema.is_valid({"version": 1, "phases": {"serving": {"compile": 0}}})


def test_every_problem_of_a_file_is_said_at_once():
    value = {"version": 2, "mode": "strict", "phases": {"serving": {"compile": 0, "compiles": -1}}, "extra": 1}
    with pytest.raises(InputError) as caught:
        budgets.from_values(value, "budget.toml")
    places = " ".join(problem.where for problem in caught.value.problems)
    assert all(name in places for name in ("budget.toml", "version", "mode", "phases.serving"))


@pytest.mark.parametrize("text", ["version = ", "\xff"])
def test_a_file_that_is_not_toml_is_refused(tmp_path, text):
    path = tmp_path / "budget.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="TOML"):
        budgets.read(path)


def log(*rows: tuple[str, int | None, str]):
    """Compiles as (kernel, rank, class of n), each rank in a process of its own."""
    files: dict[int | None, list] = {}
    for number, (kernel, rank, text) in enumerate(rows):
        key = f"{kernel}[hip:gfx942](n{text})"
        files.setdefault(rank, []).append(
            {"event": "start", "id": number, "at": number, "route": "jit", "phase": "serving", "rank": rank}
            | {"kernel": kernel, "key": key, "arguments": [["n", text]]}
        )
    triton = {"event": "triton", "version": "3.9.0", "watched": [], "missing": []}
    return read([[triton, *events] for events in files.values()])


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([("k", 0, ":i32"), ("k", 1, ":i32")], 1),
        ([("k", 0, ":i32"), ("k", 1, ":i32:D")], 2),
        ([("k", 0, ":i32"), ("k", 0, ":i32")], 2),
        ([("k", 0, ":i32"), ("k", 0, ":i32"), ("k", 1, ":i32")], 2),
    ],
)
def test_a_variant_counts_once_over_the_ranks_and_again_within_one(rows, count):
    report = judge(log(*rows), Budget("observe", (PhaseBudget("serving", compiles=count),)))
    assert report.count() == count
    assert report.verdict.exit_code == 0
    assert judge(log(*rows), Budget("observe", (PhaseBudget("serving", compiles=count - 1),))).verdict.exit_code == 1


def test_kernels_that_no_pattern_names_share_the_budget():
    rows = [("a", 0, ":i32"), ("b", 0, ":i32"), ("gather", 0, ":i32"), ("gather", 0, "=1")]
    budget = Budget("observe", (PhaseBudget("serving", compiles=1, kernels=(("gath*", 2),)),))
    report = judge(log(*rows), budget)
    assert {row.kernel: row.excess for row in report.rows} == {
        "a": "phase serving allows 1 compiles, 2 happened",
        "b": "phase serving allows 1 compiles, 2 happened",
        "gather": None,
    }
