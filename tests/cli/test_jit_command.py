"""What `aotkern audit jit` and `coverage` refuse before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from aotkern.cli.coverage import coverage
from aotkern.cli.jit import jit
from aotkern.errors import InputError


def refused(command, *arguments: str) -> str:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "COMMAND: expected a command to run, or --events"),
        (("--ready-pattern", "(", "--", "true"), "--ready-pattern: expected a regular expression"),
        (("--ready-signal", "NOPE", "--", "true"), "--ready-signal: expected the name of a signal"),
        (("--report", "pdf=x", "--", "true"), "--report: expected FORM=FILE"),
        (("--report", "junit", "--", "true"), "--report: expected FORM=FILE"),
        (("--bundle", "/nonexistent.aotk", "--", "true"), "/nonexistent.aotk: expected a bundle or a manifest"),
        (("--budget", "/nonexistent.toml", "--", "true"), "/nonexistent.toml: expected a budget that can be read"),
    ],
)
def test_a_bad_request_is_refused_by_name(arguments, said):
    assert refused(jit, *arguments).startswith(said)


def test_a_misspelt_option_is_not_taken_for_the_command():
    result = CliRunner().invoke(jit, ["--budgets", "x", "--", "true"])
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_events_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path):
    (tmp_path / "old.jsonl").write_text("")
    assert "expected a folder without event files" in refused(jit, "--events", str(tmp_path), "--", "true")


def test_a_folder_of_events_is_reported_on_without_a_command(tmp_path):
    (tmp_path / "host.1.2.jsonl").write_text('{"event": "triton", "version": "3.9.0", "watched": [], "missing": []}\n')
    result = CliRunner().invoke(jit, ["--events", str(tmp_path)])
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "jit: clean")


def test_a_folder_that_is_not_there_could_not_tell(tmp_path):
    result = CliRunner().invoke(jit, ["--events", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no such folder" in result.output


def test_a_trace_that_is_not_there_is_named(tmp_path):
    manifest = Path(__file__).parents[2] / "manifests" / "gfx942.json"
    said = refused(coverage, str(manifest), "--trace", str(tmp_path / "none"))
    assert said == f"--trace: expected a folder of events, found no such folder: {tmp_path / 'none'}"


def test_coverage_needs_one_source_of_calls():
    assert "--domain, --trace: expected one of the two, found neither" in refused(coverage, "bundle")
    assert "found both" in refused(coverage, "bundle", "--domain", "a", "--trace", "b")
