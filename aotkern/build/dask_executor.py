"""Compiling on a Dask cluster, which somebody else started: the driver's side. See `dask_station` for the other.

Dask does what schedulers do: it gives tasks to workers, runs a task again whose worker was lost, and gives a task up
whose workers keep dying (`distributed.scheduler.allowed-failures`). What is decided here:

1. One variant is one task, and only some more than the cluster has threads are out at a time.
2. A worker that refuses (another toolchain, other kernel sources, another aotkern) is left out from then on, and its
   task goes to another.
3. Dask blames every task that a dying worker had taken. So a task that it gave up runs once more at the end, alone: if
   workers die again, it is the variant's fault and its failure.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from aotkern.build import shipping, toolchain
from aotkern.build.dask_station import Job, Outcome, ProcessDiedError, Station, compile_variant, own_digest
from aotkern.build.origins import Origins
from aotkern.build.pool import Pool, Setting
from aotkern.errors import BuildError, InputError, MissingToolError, RemoteError

CONNECT_SECONDS = 10.0
"""How long a scheduler may take to answer."""

NO_WORKER_SECONDS = 600.0
"""How long a cluster may have no worker at all, as one that grows on demand has at first."""

NO_FIT_SECONDS = 30.0
"""How long it may have only workers that refuse."""

RETRIES = 2
"""How often Dask runs a task again that failed in a way that may be the machine's fault."""

_POLL_SECONDS = 1.0
_LEAST_OUT = 16
_OUT_PER_THREAD = 3


class DaskExecutor:
    """An executor on the cluster of a Dask scheduler; see `executor`.

    Args:
        setting: How workers are started; of its `inherited` only the planning workers on this machine get something.
        ready: How many planning workers are started at once; see `pool.Pool`.
        scheduler: Address of the scheduler, as Dask writes it: `tcp://host:8786`, or `tls://...` with the certificates
            of Dask's own configuration.
    """

    def __init__(self, setting: Setting, ready: int | None, scheduler: str) -> None:
        self._setting, self._scheduler = setting, scheduler
        self._pool = Pool(setting, 2, ready)
        self._planning = contextlib.ExitStack()
        self._client: Any = None
        self._job: Callable[[], Job] | None = None

    def __enter__(self) -> DaskExecutor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._pool)  # whose workers start while the scheduler is asked
            self._client = _connected(self._scheduler)
            self._planning = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._planning.close()
        self._client.close(CONNECT_SECONDS)

    def plan(
        self, targets: Sequence[str], only: Sequence[str], limit: int, memo: Path | None
    ) -> tuple[dict[str, Any], Callable[[], dict[str, str]]]:
        """Plan on this machine, as `pool.Pool.plan` does, and pack what a cluster needs.

        Raises:
            AotkernError: The sources or their declarations are wrong or too large to send, or Triton is missing.
        """
        plan, described = self._pool.plan(targets, only, limit, memo)
        shipment, own = shipping.packed(self._setting.sources), str(toolchain.own())
        kernels = {name: source for name, _, source in plan["kernels"]}
        settings, overrides = dict(self._setting.settings), dict(self._setting.overrides)
        device, patience = self._setting.device, self._setting.patience
        self._job = lambda: Job(shipment, settings, overrides, own, described(), kernels, device, patience)
        return plan, described

    @property
    def origins(self) -> Origins:
        """What the planning workers have read; what compiles elsewhere is held against their kernels' digests."""
        return self._pool.origins

    def compile(
        self,
        keys: Sequence[str],
        seconds: float,
        done: Callable[[str, dict[str, Any], bytes], None],
        failed: Callable[[BuildError], None],
    ) -> None:
        """Compile these variants on the cluster; see `executor.Executor.compile`. The planning workers end here.

        Raises:
            RemoteError: The scheduler was lost, or no worker of the cluster can compile for this build.
            AotkernError: The toolchain could not be described.
        """
        if self._job is None:
            raise InputError.one("compile", "a plan first", "none")
        job = self._job()  # which waits for the toolchain's digest: no machine compiles that was not held against it
        self._planning.close()
        run = _Run(self._client, self._scheduler, job, seconds, done, failed)
        try:
            run.all(keys)
        except BaseException:
            run.cancel()
            raise


def _connected(scheduler: str) -> Any:
    try:
        from distributed import Client  # noqa: PLC0415 - the extra `dask`
    except ImportError as error:
        raise MissingToolError("distributed", "for --executor dask", "pip install 'aotkern[dask]'") from error
    try:
        return Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False, name="aotkern")
    except Exception as error:  # unknown addresses, refused connections, wrong certificates: each has its own class
        found = f"{type(error).__name__}: {error}"[:300]
    # What is left of the client closes itself when it is collected. Inside the start of a later one, whose lock it then
    # waits for, that would cost ten seconds and that client: so now, when no traceback holds it any more.
    gc.collect()
    expected = f"a Dask scheduler that answers within {CONNECT_SECONDS:g} s"
    raise RemoteError.one(f"scheduler {scheduler}", expected, found)


def _name(function: Callable[..., Any]) -> str:
    return f"aotkern-{function.__name__}-{uuid.uuid4().hex}"


class _Run:
    """The variants of one `compile` on their way over the cluster."""

    def __init__(
        self,
        client: Any,
        scheduler: str,
        job: Job,
        seconds: float,
        done: Callable[[str, dict[str, Any], bytes], None],
        failed: Callable[[BuildError], None],
    ) -> None:
        self._client, self._scheduler, self._job = client, scheduler, job
        self._seconds, self._done, self._failed = seconds, done, failed
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._out: dict[Any, tuple[str, frozenset[str]]] = {}  # future -> variant, and the workers it is bound to
        self._waiting: deque[str] = deque()
        self._suspects: list[str] = []
        self._refused: dict[str, str] = {}
        self._threads: dict[str, int] = {}
        self._asked: set[str] = set()
        self._looked = 0.0
        self._alive = self._fitting = time.monotonic()
        self._station: Any = None

    def all(self, keys: Iterable[str]) -> None:
        """Compile them; the suspects one by one in the end."""
        self._waiting.extend(keys)
        self._until_empty(alone=False)
        suspects, self._suspects = self._suspects, []
        for key in suspects:
            self._waiting.append(key)
            self._until_empty(alone=True)

    def cancel(self) -> None:
        """Take back what is out. What is being compiled ends by itself, at the latest by its time-out."""
        futures = [future for future in (*self._out, self._station) if future is not None]
        self._out.clear()
        with contextlib.suppress(Exception):  # the scheduler may be what is lost
            self._client.cancel(futures, force=True)

    def _until_empty(self, *, alone: bool) -> None:
        while self._waiting or self._out:
            self._look()
            self._submit()
            ready = self._ready()
            results = self._gathered(ready)
            for future in filter(self._out.__contains__, ready):  # settling one may take others back
                self._settle(future, results, alone=alone)

    def _look(self) -> None:
        """Learn which workers there are, now and then; take tasks back from those that are gone."""
        now = time.monotonic()
        if now - self._looked < _POLL_SECONDS:
            return
        self._looked = now
        try:
            self._threads = dict(self._client.nthreads())
            self._examine()
        except Exception as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error
        self._alive = now if self._threads else self._alive
        self._fitting = now if self._fit() or not self._threads else self._fitting
        if now - self._alive > NO_WORKER_SECONDS:
            raise self._no_worker(f"none for {NO_WORKER_SECONDS:g} s")
        if now - self._fitting > NO_FIT_SECONDS:
            raise self._no_worker("; ".join(f"{worker}: {self._refused[worker]}" for worker in self._threads))
        orphans = [future for future, (_, bound) in self._out.items() if bound and not bound & self._threads.keys()]
        for future in orphans:
            self._again(future)

    def _fit(self) -> frozenset[str]:
        return frozenset(self._threads.keys() - self._refused.keys())

    def _submit(self) -> None:
        fit = self._fit()
        if not fit and self._refused:
            return  # Dask reads an empty list of workers as any worker
        bound = fit if self._refused else frozenset()
        most = max(_LEAST_OUT, _OUT_PER_THREAD * sum(self._threads[worker] for worker in fit))
        keys = [self._waiting.popleft() for _ in range(min(len(self._waiting), most - len(self._out)))]
        if not keys:
            return
        names = [_name(compile_variant) for _ in keys]
        where = {"workers": sorted(bound) or None, "retries": RETRIES, "pure": False}
        tasks = self._client.map(
            compile_variant, keys, key=names, station=self._at(bound), seconds=self._seconds, batch_size=None, **where
        )
        for future, key in zip(tasks, keys, strict=True):
            self._out[future] = key, bound
            future.add_done_callback(self._finished.put)

    def _at(self, bound: frozenset[str]) -> Any:
        if self._station is None or self._station.status in ("error", "cancelled", "lost"):
            where = {"workers": sorted(bound) or None, "retries": RETRIES, "pure": False}
            self._station = self._client.submit(Station, self._job, key=_name(Station), **where)
        return self._station

    def _ready(self) -> list[Any]:
        """The tasks that have ended, those that were taken back left out; waits a little for the first."""
        found: list[Any] = []
        try:
            found.append(self._finished.get(timeout=_POLL_SECONDS))
            while True:
                found.append(self._finished.get_nowait())
        except queue.Empty:
            return [future for future in found if future in self._out]

    def _gathered(self, futures: Sequence[Any]) -> dict[str, Outcome]:
        """The results that are there, by task: in one request, which costs little more than one for each."""
        finished = {future.key: future for future in futures if future.status == "finished"}
        try:
            found: dict[str, Outcome] = self._client.gather(finished, errors="skip") if finished else {}
        except Exception as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error
        return found

    def _settle(self, future: Any, results: Mapping[str, Outcome], *, alone: bool) -> None:
        key = self._out[future][0]
        if future.key in results:
            self._came(future, key, results[future.key])
        elif future.status == "error":
            self._erred(future, key, future.exception(), alone=alone)
        elif future.status in ("cancelled", "lost"):
            raise self._lost("its tasks were cancelled")
        else:
            self._again(future)  # its worker was lost with the result

    def _came(self, future: Any, key: str, outcome: Outcome) -> None:
        self._forget(future)
        if outcome.refused:
            self._refused[outcome.worker] = outcome.refused
            self._waiting.append(key)
        elif outcome.answer is None:
            self._failed(BuildError(key, outcome.failure))
        else:
            self._done(key, outcome.answer, outcome.data)

    def _erred(self, future: Any, key: str, error: BaseException, *, alone: bool) -> None:
        from distributed import KilledWorker  # noqa: PLC0415 - the extra `dask`

        self._forget(future)
        if isinstance(error, ProcessDiedError):
            self._failed(BuildError(key, f"{error}; tried {RETRIES + 1} times"))
        elif not isinstance(error, KilledWorker):
            before, self._looked = len(self._refused), 0.0
            self._look()
            if len(self._refused) > before:  # perhaps it was such a worker's
                self._waiting.append(key)
            else:
                self._failed(BuildError(key, f"{type(error).__name__}: {error}"))
        elif alone:
            died = error.allowed_failures + 1
            self._failed(BuildError(key, f"{died} Dask workers died of it, the last {error.last_worker.address}"))
        else:
            self._suspects.append(key)

    def _examine(self) -> None:
        """Ask workers that are new for their aotkern, and leave out those without it or with another.

        A worker without it would never get as far as refusing: Dask waits on it for ever for a station that it cannot
        read. So everything that is out is taken back when there is one.
        """
        new = sorted(self._threads.keys() - self._asked)
        answers = self._client.run(own_digest, workers=new, on_error="return") if new else {}
        found = {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
        self._asked |= found.keys()
        bad = {worker: answer for worker, answer in found.items() if answer != self._job.aotkern}
        for worker, answer in bad.items():
            self._refused[worker] = f"aotkern: {self._job.aotkern} where the build was planned, {answer} there"
        for future in list(self._out) if bad else ():
            self._again(future)

    def _again(self, future: Any) -> None:
        key, _ = self._forget(future)
        self._station = None  # it may be bound to workers that are gone
        self._waiting.appendleft(key)

    def _forget(self, future: Any) -> tuple[str, frozenset[str]]:
        known = self._out.pop(future)
        future.release()
        return known

    def _no_worker(self, found: str) -> RemoteError:
        return RemoteError.one(f"scheduler {self._scheduler}", "a worker that can compile for this build", found[:2000])

    def _lost(self, found: str) -> RemoteError:
        expected = "a Dask scheduler that answers until the build ends; what it compiled is in the store"
        return RemoteError.one(f"scheduler {self._scheduler}", expected, found[:300])
