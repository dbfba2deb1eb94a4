"""What runs on a Dask worker: a station that keeps aotkern worker processes for one build, and the task that uses it.

Nothing is compiled in the Dask worker's own process. A station is the result of a Dask task, and each compile depends
on it: so Dask brings it to every worker once, makes it anew when its worker is lost, and drops it when the build ends
or its driver dies. With the station go its processes and its folder.

A station compiles nothing before it has seen that this machine has the driver's aotkern, toolchain and kernels.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotkern.build import shipping, toolchain
from aotkern.build.pool import STARTUP_SECONDS, Pool, Setting, WorkerProcess
from aotkern.build.shipping import Shipment
from aotkern.errors import AotkernError, BuildError


@dataclass(frozen=True, slots=True)
class Job:
    """One build, as its driver describes it.

    Attributes:
        shipment: The kernel sources.
        settings: The pinned variables of workers.
        overrides: Variables of workers that a caller changes on purpose.
        aotkern: Digest of the driver's aotkern; see `toolchain.own`.
        toolchain: What compiles, as the driver's plan states it; see `toolchain.describe`.
        kernels: The source digest of each kernel by name, as the driver's plan states it.
        device: The target of the device on paper under which sources are imported, or nothing.
        patience: Longest time for importing the sources, in seconds.
    """

    shipment: Shipment
    settings: Mapping[str, str]
    overrides: Mapping[str, str]
    aotkern: str
    toolchain: Mapping[str, str]
    kernels: Mapping[str, str]
    device: str = ""
    patience: float = STARTUP_SECONDS

    def differences(self, found_toolchain: Mapping[str, str], found_kernels: Mapping[str, str]) -> list[str]:
        """Why a machine with this toolchain and these kernels must not compile for this build."""
        stated = [("toolchain", self.toolchain, found_toolchain), ("kernel source", self.kernels, found_kernels)]
        return [
            f"{what} {name}: {expected.get(name, 'none')} where the build was planned, {found.get(name, 'none')} there"
            for what, expected, found in stated
            for name in sorted({*expected, *found})
            if expected.get(name) != found.get(name)
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one task.

    Attributes:
        worker: The Dask worker's address.
        answer: The aotkern worker's answer, if there is a code object; see `worker.Worker.compile`.
        data: The code object.
        failure: Why the variant does not compile, or nothing.
        refused: Why this machine does not compile for this build, or nothing.
    """

    worker: str
    answer: dict[str, Any] | None = None
    data: bytes = b""
    failure: str = ""
    refused: str = ""


class ProcessDiedError(Exception):
    """An aotkern worker process died: a reason to try again elsewhere, which Dask does (`retries`)."""


class _Refusal(Exception):  # noqa: N818 - a way out, no error
    """This machine must not compile for this build."""


class Station:
    """The aotkern worker processes of one build on one Dask worker, started as its threads need them.

    Args:
        job: The build.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._refused = ""

    def __reduce__(self) -> tuple[type[Station], tuple[Job]]:
        return type(self), (self._job,)

    def compile(self, key: str, seconds: float, worker: str, threads: int, folder: Path) -> Outcome:
        """Compile one variant; see `compile_variant`.

        Args:
            key: Text of the variant's key.
            seconds: Longest time for it.
            worker: Address of the Dask worker.
            threads: How many tasks it runs at a time.
            folder: Its folder for temporary files, which it clears when it ends.

        Raises:
            ProcessDiedError: The aotkern worker process died.
        """
        try:
            answer, data = self._open(threads, folder).compile_one(key, seconds)
        except _Refusal as refusal:
            self._refused = str(refusal)
            return Outcome(worker, refused=str(refusal))
        except BuildError as error:
            return Outcome(worker, failure=error.reason)
        except TimeoutError as error:
            return Outcome(worker, failure=str(error))
        except EOFError as error:
            raise ProcessDiedError(str(error)) from None
        return Outcome(worker, answer, data)

    def _open(self, threads: int, folder: Path) -> Pool:
        """The pool; its first user checks aotkern and unpacks the sources."""
        with self._lock:
            if self._refused:
                raise _Refusal(self._refused)
            if self._pool is None:
                if (found := str(toolchain.own())) != self._job.aotkern:
                    raise _Refusal(f"aotkern: {self._job.aotkern} where the build was planned, {found} there")
                place = tempfile.TemporaryDirectory(prefix="aotkern-", dir=folder, ignore_cleanup_errors=True)
                sources, paths = shipping.unpacked(self._job.shipment, Path(place.name))
                setting = Setting(
                    sources,
                    self._job.settings,
                    dict(os.environ),
                    self._job.overrides,
                    paths,
                    self._job.device,
                    self._job.patience,
                )
                # The memo outlives the station. And no reference to the station itself, which would keep it alive.
                admit = functools.partial(_admit, self._job, folder / "aotkern.toolchain")
                self._pool = Pool(setting, threads, 0, Path(place.name), admit)
                weakref.finalize(self, _close, self._pool, place)
            return self._pool


def _admit(job: Job, memo: Path, process: WorkerProcess) -> None:
    """Hold a new worker process against the plan, before it compiles anything."""
    try:
        found = process.ask({"do": "identify", "memo": str(memo)}, job.patience)
    except (AotkernError, EOFError, TimeoutError) as error:
        reason = error.reason if isinstance(error, BuildError) else str(error)
        raise _Refusal(f"the kernel sources cannot be used there: {reason}") from None
    if differences := job.differences(found["toolchain"], found["kernels"]):
        raise _Refusal("; ".join(differences))


def _close(pool: Pool, place: tempfile.TemporaryDirectory[str]) -> None:
    pool.__exit__(None, None, None)
    place.cleanup()


def compile_variant(key: str, station: Station, seconds: float) -> Outcome:
    """The task: compile one variant on the Dask worker that runs this.

    Raises:
        ProcessDiedError: The aotkern worker process died.
    """
    from distributed import get_worker  # noqa: PLC0415 - the extra `dask`

    worker = get_worker()
    return station.compile(key, seconds, worker.address, worker.state.nthreads, Path(worker.local_directory))


def own_digest() -> str:
    """Which aotkern a Dask worker has."""
    return str(toolchain.own())
