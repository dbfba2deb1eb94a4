"""A Dask cluster of separate processes on this machine, for tests. A plugin of the suite; see `conftest.py`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


class Cluster:
    """A scheduler, and workers that are started as a test needs them, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._file = folder / "scheduler.json"
        more = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self._file))
        self.scheduler = self._start("scheduler", *more)

    @functools.cached_property
    def address(self) -> str:
        """Of the scheduler; waits until it has one."""
        until = time.monotonic() + 60
        while not self._file.exists() or not self._file.read_text():
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.05)
        return str(json.loads(self._file.read_text())["address"])

    def _start(self, kind: str, *arguments: str, path: tuple[Path, ...] = ()) -> subprocess.Popen[bytes]:
        place = self.folder / f"{kind}{len(self._processes)}"
        place.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "DASK_"))},
            "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        }
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def add(self, *names: str, path: tuple[Path, ...] = (), nanny: bool = False) -> list[subprocess.Popen[bytes]]:
        """Start workers with these names, which look for modules in `path` first; returns at once.

        A nanny starts a worker again that was killed.
        """
        more = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--memory-limit", "0")
        kept = ("--scheduler-file", str(self._file), "--nanny" if nanny else "--no-nanny", *more)
        return [
            self._start("worker", "--name", name, "--local-directory", str(self.folder / name), *kept, path=path)
            for name in names
        ]

    @contextlib.contextmanager
    def client(self) -> Iterator[object]:
        """A client of the test's own."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            yield client

    def named(self, client, *names: str) -> dict[str, SimpleNamespace]:
        """Address and process of the workers with these names, once all have come."""
        until = time.monotonic() + 60
        while True:
            assert time.monotonic() < until, f"no workers {names}"
            rows = client.run(lambda dask_worker: (dask_worker.name, os.getpid()), on_error="ignore")
            found = {name: SimpleNamespace(address=address, pid=pid) for address, (name, pid) in rows.items()}
            if found.keys() >= set(names):
                return {name: found[name] for name in names}
            time.sleep(0.1)

    def end(self, *processes: subprocess.Popen[bytes]) -> None:
        """End processes of the cluster, all without names, and wait for them."""
        # The scheduler last: a worker takes its leave of it, and looks for it for long when it is gone.
        ending = [process for process in processes or self._processes if process is not self.scheduler]
        for process in ending:
            process.terminate() if self.scheduler.poll() is None else process.kill()
        for process in [*ending, *([] if processes else [self.scheduler])]:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers, `one` and `two`."""
    pytest.importorskip("distributed")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.add("one", "two", nanny=True)
        yield made
    finally:
        made.end()
