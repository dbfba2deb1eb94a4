"""Event files under threads, forks, full disks and damage."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from aotkern.audit.jit.events import Outcome, read
from aotkern.triton_bridge.gate import Phases, mark
from aotkern.triton_bridge.sink import FORMAT, FileSink


def lines(folder) -> dict[str, list[dict]]:
    return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.glob("*.jsonl")}


def test_threads_never_mix_their_lines(tmp_path):
    sink = FileSink(tmp_path, dict)
    long = "x" * 5000

    def work(number: int) -> None:
        for count in range(50):
            sink.write({"event": "note", "thread": number, "count": count, "text": long})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (events,) = lines(tmp_path).values()
    assert events[0]["format"] == FORMAT
    assert len(events) == 1 + 8 * 50
    for number in range(8):
        assert [event["count"] for event in events[1:] if event["thread"] == number] == list(range(50))


def test_a_forked_child_writes_a_file_of_its_own(tmp_path):
    sink = FileSink(tmp_path, dict)
    sink.write({"event": "note", "who": "parent"})
    child = os.fork()
    if child == 0:
        sink.write({"event": "note", "who": "child"})
        os._exit(0)
    os.waitpid(child, 0)
    sink.write({"event": "note", "who": "parent"})
    files = sorted(lines(tmp_path).values(), key=len)
    assert [event.get("who") for event in files[0]] == [None, "child"]
    assert files[0][0]["forked_from"] == os.getpid()
    assert [event.get("who") for event in files[1]] == [None, "parent", "parent"]


def test_a_folder_that_is_not_there_is_said_once(tmp_path, capsys):
    sink = FileSink(tmp_path / "none", dict)
    for _ in range(3):
        sink.write({"event": "note"})
    assert capsys.readouterr().err.count("is not watched") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_lines_that_a_full_disk_refuses_are_counted(tmp_path, monkeypatch):
    sink = FileSink(tmp_path, dict)
    sink.write({"event": "note"})
    good = sink._descriptor
    sink._descriptor = os.open("/dev/full", os.O_WRONLY)
    sink.write({"event": "note"})
    sink.write({"event": "note"})
    os.close(sink._descriptor)
    sink._descriptor = good
    sink.write({"event": "note"})
    (events,) = lines(tmp_path).values()
    assert [event.get("lost") for event in events] == [None, None, 2]
    assert read([map(json.dumps, events)]).lost == 2


def test_a_damaged_line_costs_that_line():
    start = {
        "event": "start",
        "id": 1,
        "at": 5,
        "route": "jit",
        "phase": "startup",
        "kernel": "k",
        "key": "k[hip:gfx942]()",
    }
    log = read([[json.dumps(start), '{"event": "end", "id": 1, "sec', "", "[]", '{"event": "later", "new": 1}']])
    assert [compile_.outcome for compile_ in log.compiles] == [Outcome.UNFINISHED]
    assert log.lost == 2


def test_the_phase_is_the_last_mark(tmp_path):
    phases = Phases(tmp_path)
    assert phases.current() == "startup"
    mark(tmp_path, "serving", "a test")
    assert phases.current() == "serving"
    with (tmp_path / "phases.jsonl").open("a") as file:
        file.write('{"phase": "half')
    assert phases.current() == "serving"
