"""Running a command: the moment when it is ready, its output, its signals and its status."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from aotkern.triton_bridge.gate import PHASES_FILE
from aotkern.triton_bridge.launch import Ready, Runner


def marks(folder) -> list[str]:
    path = folder / PHASES_FILE
    return [json.loads(line)["by"] for line in path.read_text().splitlines()] if path.exists() else []


def run(folder, script: str, ready: Ready, out) -> int:
    with out.open("wb") as output, (folder / "error").open("wb") as error:
        return Runner(["sh", "-c", script], folder, ready, output, error).run({"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("script", "ready", "by"),
    [
        ("echo first; echo 'all is ready now'; echo again ready", Ready(re.compile("is ready")), ["output 'is ready'"]),
        ("printf 'no newline, ready'; sleep 0.1", Ready(re.compile("ready$")), ["output 'ready$'"]),
        ("echo nothing", Ready(re.compile("ready")), []),
        ("sleep 0.3", Ready(seconds=0.05), ["0.05 s"]),
        ("sleep 0.1", Ready(seconds=60), []),
    ],
)
def test_the_program_is_ready_once(tmp_path, script, ready, by):
    assert run(tmp_path, script, ready, tmp_path / "out") == 0
    assert marks(tmp_path) == by


def test_a_file_says_that_the_program_is_ready(tmp_path):
    file = tmp_path / "ready"
    assert run(tmp_path, f"touch {file}; sleep 0.3", Ready(file=file), tmp_path / "out") == 0
    assert marks(tmp_path) == [f"file {file}"]


def test_output_passes_through_unchanged(tmp_path):
    out = tmp_path / "out"
    assert run(tmp_path, r"printf 'a\377\nb'; echo c >&2", Ready(re.compile("x")), out) == 0
    assert out.read_bytes() == b"a\xff\nb"
    assert (tmp_path / "error").read_bytes() == b"c\n"


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_the_status_is_the_programs(tmp_path, script, status):
    assert run(tmp_path, script, Ready(), tmp_path / "out") == status


def test_a_signal_to_the_audit_reaches_the_program(tmp_path):
    script = "trap 'echo stopped; exit 7' TERM; echo started; while :; do sleep 0.05; done"
    audit = subprocess.Popen(
        [sys.executable, "-m", "aotkern", "audit", "jit", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert audit.stdout.readline() == "started\n"
    time.sleep(0.1)
    audit.send_signal(signal.SIGTERM)
    rest = audit.communicate(timeout=60)[0]
    assert rest.startswith("stopped\n")
    assert "the program ended with status 7" in rest
    assert audit.returncode == 2
