"""Where variants are compiled: one protocol, and a line for each way.

An executor plans on this machine and compiles wherever it does. Whichever it is, each compile runs in an aotkern worker
process with a pinned environment and a private, empty Triton cache; see `worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from aotkern.build.dask_executor import DaskExecutor
from aotkern.build.origins import Origins
from aotkern.build.pool import Pool, Setting
from aotkern.errors import BuildError

Done = Callable[[str, dict[str, Any], bytes], None]
Failed = Callable[[BuildError], None]


class Executor(Protocol):
    """What `builder` needs; used in a `with` statement."""

    def __enter__(self) -> Executor: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def plan(
        self, targets: Sequence[str], only: Sequence[str], limit: int, memo: Path | None
    ) -> tuple[dict[str, Any], Callable[[], dict[str, str]]]:
        """What there is to build (see `worker.Worker.plan`), and a function that waits for what compiles it."""
        ...

    @property
    def origins(self) -> Origins:
        """What the workers on this machine have read so far."""
        ...

    def compile(self, keys: Sequence[str], seconds: float, done: Done, failed: Failed) -> None:
        """Compile variants of the plan; `done` and `failed` are called one at a time."""
        ...


EXECUTORS: Mapping[str, Callable[[Setting, int, int | None, str], Executor]] = {
    "local": lambda setting, jobs, ready, _: Pool(setting, jobs, ready),
    "dask": lambda setting, _, ready, scheduler: DaskExecutor(setting, ready, scheduler),
}
"""Each executor by name, made from the setting of workers, the number of local jobs and how many workers are started
at once (see `pool.Pool`), and a scheduler's address."""
