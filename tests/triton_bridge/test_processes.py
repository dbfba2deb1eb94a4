"""Whole programs under watch, by the command that users run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import aotkern
from aotkern import schemas
from aotkern.triton_bridge.child import INJECTED

HERE = Path(__file__).parent
REPOSITORY = Path(aotkern.__file__).parents[1]
PROGRAM = [sys.executable, str(HERE / "programs.py")]


@dataclass(frozen=True)
class Run:
    status: int
    report: dict[str, Any]
    error: str

    @property
    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["phase"], row["kernel"]): row for row in self.report["kernels"]}


@pytest.fixture
def audit(tmp_path):
    def run(*command: str, options: tuple[str, ...] = (), **environment: str) -> Run:
        folder = tmp_path / "events"
        given = () if "--events" in options else ("--events", str(folder))
        done = subprocess.run(
            [sys.executable, "-m", "aotkern", "audit", "jit", "--json", *given, *options, "--", *command],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout, done.stderr
        return Run(done.returncode, json.loads(done.stdout), done.stderr)

    return run


def test_ranks_that_compile_the_same_variant_count_once_and_each(audit):
    run = audit(*PROGRAM, "ranks", "0", "1")
    row = run.rows["startup", "scale"]
    assert run.status == 0
    assert (row["compiles"], row["variants"], row["ranks"]) == (1, 1, {"0": 1, "1": 1})
    assert len(run.report["processes"]) == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_are_watched_in_files_of_their_own(audit, method, tmp_path):
    run = audit(*PROGRAM, method)
    files = [path.read_text().splitlines() for path in (tmp_path / "events").glob("*.*.*.jsonl")]
    schema = jsonschema.Draft202012Validator(schemas.load("jit-event"))
    for line in (line for lines in files for line in lines):
        schema.validate(json.loads(line))
    assert len(files) == 2
    row = run.rows["startup", "scale"]
    assert run.status == 0
    assert row["compiles"] == 2
    assert len({event["process"] for event in row["events"]}) == 2


@pytest.mark.parametrize(
    ("action", "options", "phase"),
    [
        ("ready", ("--ready-pattern", "startup complete"), "serving"),
        ("signal", ("--ready-signal", "USR1"), "serving"),
        ("mark", (), "scored"),
    ],
)
def test_a_compile_after_ready_is_in_another_phase(audit, action, options, phase):
    run = audit(*PROGRAM, action, options=options)
    assert {key: row["compiles"] for key, row in run.rows.items()} == {("startup", "scale"): 1, (phase, "scale"): 1}
    assert run.status == (1 if options else 0)
    causes = [cause["message"] for cause in run.rows[phase, "scale"]["causes"]]
    assert causes[0].startswith("n: multiple of 16 -> other")


def test_error_mode_raises_in_the_program_before_it_compiles(audit, tmp_path):
    budget = tmp_path / "budget.toml"
    budget.write_text(
        'version = 1\nmode = "error"\n[phases.startup]\ncompiles = 9\n[phases.startup.kernels]\n"sc*" = 1\n'
    )
    run = audit(*PROGRAM, "compile", "16", "17", options=("--budget", str(budget)))
    assert run.status == 1
    assert "UnexpectedCompileError: unexpected compile of scale[hip:gfx942]" in run.error
    assert run.rows["startup", "scale"]["outcomes"] == {"compiled": 1, "refused": 1}


def test_a_killed_process_leaves_the_start_of_its_compile(audit):
    run = audit(*PROGRAM, "die", "16")
    assert run.rows["startup", "scale"]["outcomes"] == {"compiled": 1, "unfinished": 1}
    assert run.status == 2
    assert run.report["obstacle"] == "the program ended with status -9"


def test_a_folder_that_cannot_be_written_leaves_the_program_alone(audit, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    run = audit(*PROGRAM, "compile", "16", options=("--events", str(file / "events")))
    assert run.status == 2
    assert run.report["obstacle"].startswith("events could not be written, so nothing was watched: ")
    assert run.report["kernels"] == []


def test_a_process_that_cannot_write_says_so_and_goes_on(tmp_path):
    done = subprocess.run(
        [*PROGRAM, "compile", "16"],
        env={**os.environ, "PYTHONPATH": f"{INJECTED}:{REPOSITORY}", "AOTKERN_JIT_EVENTS": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.count("is not watched: ") == 1


def test_interpreted_kernels_are_not_applicable(audit):
    run = audit(
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import triton_program",
        TRITON_INTERPRET="1",
    )
    assert run.status == 2
    assert run.report["obstacle"].startswith("not applicable: TRITON_INTERPRET is set")


def test_a_program_without_triton_could_not_be_watched(audit):
    run = audit(*PROGRAM, "nothing")
    assert run.status == 2
    assert run.report["obstacle"] == "no watched process imported Triton"
    assert "no Triton here" in run.error


def test_the_programs_own_sitecustomize_runs_and_ours_is_invisible(audit, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.OWN_SITE = True\n")
    code = (
        "import builtins, sys, sitecustomize\n"
        "assert builtins.OWN_SITE and 'own' in sitecustomize.__file__, sitecustomize.__file__\n"
        f"assert {str(INJECTED)!r} not in sys.path\n"
        "assert not [name for name in sys.modules if name.startswith(('aotkern', 'triton'))]\n"
    )
    run = audit(sys.executable, "-c", code, PYTHONPATH=f"{REPOSITORY}:{own}")
    assert "Traceback" not in run.error
    assert run.report["obstacle"] == "no watched process imported Triton"


def test_a_program_that_does_not_have_aotkern_is_watched(audit):
    run = audit("env", f"PYTHONPATH={INJECTED}", *PROGRAM, "compile", "16")
    assert run.status == 0
    assert run.rows["startup", "scale"]["compiles"] == 1
