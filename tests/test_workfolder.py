"""Folders for work in progress: gone at the end, and gone after whoever was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aotkern.workfolder import PREFIX, sweep, work_folder

HOLD = """
import sys, time
from pathlib import Path
from aotkern.workfolder import work_folder
with work_folder("test", Path(sys.argv[1])) as folder:
    (folder / "inside").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    folder = Path(process.stdout.readline().strip())
    yield process, folder
    process.kill()
    process.wait()


def test_a_folder_is_removed_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    with work_folder("test", tmp_path) as folder:
        assert folder.name.startswith(f"{PREFIX}test-")
        (folder / "file").write_text("x")
    with pytest.raises(ZeroDivisionError), work_folder("test", tmp_path):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path, holder) -> None:
    process, folder = holder
    sweep(tmp_path)
    assert (folder / "inside").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    with work_folder("test", tmp_path):
        assert not folder.exists()


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    theirs = tmp_path / f"{PREFIX}thesis"
    theirs.mkdir()
    (theirs / "chapter").write_text("x")
    (tmp_path / f"{PREFIX}file").write_text("x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".in-use").write_text("")
    linked = tmp_path / f"{PREFIX}linked"
    linked.mkdir()
    (linked / ".in-use").symlink_to(elsewhere / ".in-use")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        theirs.name,
        f"{PREFIX}file",
        "elsewhere",
        linked.name,
    }


def test_a_place_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    sweep(tmp_path / "none")
