"""The parent's side of the worker processes: start, ask, time out, restart.

A worker that dies or takes too long costs the variant it was compiling, not the build: it is replaced, and the failure
carries what it last wrote to its error output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from aotkern import isolation
from aotkern.build import environment
from aotkern.build.origins import Moved, Origins
from aotkern.build.registry import Source
from aotkern.errors import AotkernError, BuildError, InputError, IntegrityError, MachineError, MissingToolError, Problem
from aotkern.workfolder import work_folder

# The child sees the parent's import path whatever its own environment says, and nothing else of the parent.
_START = "import sys;sys.path[:]=sys.argv.pop(1).split(chr(10));from aotkern.build.worker import main;main()"
STARTUP_SECONDS = 120.0
_FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How workers are started.

    Attributes:
        sources: The kernel sources.
        settings: The pinned variables, from `environment.pinned`.
        inherited: The caller's environment, of which little is used.
        overrides: Variables that an audit changes on purpose.
        paths: Folders that workers look for modules in before anywhere else.
        device: The target of the device on paper under which sources are imported, or nothing.
        patience: Longest time for importing the sources, and for the plan, in seconds.
        moved: Work trees whose modules are to come from an export of a revision.
    """

    sources: tuple[Source, ...]
    settings: Mapping[str, str]
    inherited: Mapping[str, str]
    overrides: Mapping[str, str]
    paths: tuple[str, ...] = ()
    device: str = ""
    patience: float = STARTUP_SECONDS
    moved: tuple[Moved, ...] = ()


class WorkerDiedError(EOFError):
    """A worker ended without an answer; the message says how, and what it last printed.

    Attributes:
        killed: Whether it was killed from outside, as by a system that runs out of memory.
    """

    def __init__(self, message: str, *, killed: bool) -> None:
        super().__init__(message)
        self.killed = killed


class WorkerProcess:
    """One worker process with its private scratch folder.

    Starting it returns at once: the process imports its kernel sources while the parent goes on, and what went wrong
    there is raised by the first `ask`.

    Attributes:
        scratch: The folder.
        origins: What it has read, as far as its answers say.
    """

    def __init__(self, setting: Setting, scratch: Path) -> None:
        scratch.mkdir()
        self.scratch, self._log = scratch, scratch / "log"
        self.origins = Origins()
        requests_out, requests_in = os.pipe()
        answers_out, answers_in = os.pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-s",
                    "-X",
                    isolation.OPTION,
                    "-c",
                    _START,
                    "\n".join(map(os.path.abspath, (*setting.paths, *sys.path))),
                    str(requests_out),
                    str(answers_in),
                    str(os.getpid()),
                ],
                cwd=scratch,
                env=environment.for_worker(scratch, setting.settings, setting.inherited, setting.overrides),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(requests_out, answers_in),
                start_new_session=True,
            )
        os.close(requests_out)
        os.close(answers_in)
        self._requests = os.fdopen(requests_in, "w", encoding="utf-8")
        self._answers, self._buffer = answers_out, bytearray()
        sources = [
            [source.name, str(source.path) if source.path else None, source.allow_stale, source.generated]
            for source in setting.sources
        ]
        moved = [[row.tree, row.export, row.ignored] for row in setting.moved]
        self._starting, self._patience = True, setting.patience
        self._send({"sources": sources, "scratch": str(scratch), "device": setting.device, "moved": moved})

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            AotkernError: What the worker reported, in the class it reported.
            TimeoutError: No answer in time. The worker is gone.
            EOFError: The worker died; the message says what it last printed.
        """
        if self._starting:
            self._receive(self._patience)
            self._starting = False
        self._send(request)
        return self._receive(seconds)

    def _send(self, request: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # a dead worker is noticed when its answer is read
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()

    def _receive(self, seconds: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._line(seconds))
        self.origins.add(answer.pop("news", {}))
        if "error" in answer:
            raise _error(answer)
        return answer

    def _line(self, seconds: float) -> bytes:
        poll, until = select.poll(), time.monotonic() + seconds
        poll.register(self._answers, select.POLLIN)
        searched = 0  # a plan is megabytes in one line: no byte of it is looked at or moved twice
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                self.kill()
                raise TimeoutError(f"no answer within {seconds:g} s")
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise self._died()
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _died(self) -> WorkerDiedError:
        try:
            code = self._process.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:  # it closed the pipe and lives on
            self.kill()
            code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        tail = self._log.read_bytes()[-2000:].decode("utf-8", "replace").strip()
        words = f"the worker died ({how})" + (f"; it last printed:\n{tail}" if tail else "")
        return WorkerDiedError(words, killed=code == -signal.SIGKILL)

    def kill(self) -> None:
        """End the process and everything it started."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the process and close the pipes; a second time does nothing."""
        if self._requests.closed:
            return
        self.kill()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        os.close(self._answers)


def _error(answer: Mapping[str, Any]) -> AotkernError:
    kind = answer["error"]
    if "problems" in answer:
        problems = [Problem(*row) for row in answer["problems"]]
        return IntegrityError(problems) if kind == "IntegrityError" else InputError(problems)
    if kind in ("BuildError", "MachineError"):
        made = MachineError if kind == "MachineError" else BuildError
        return made(answer["key"], answer["reason"])
    if kind == "MissingToolError":
        return MissingToolError("triton", "to compile", "pip install 'aotkern[build]'")
    return BuildError("kernel sources", answer["reason"])


class Pool:
    """Workers for one build; use it in a `with` statement, which ends them and removes their folders.

    Args:
        setting: How they are started.
        jobs: Most workers at a time.
        ready: How many are started at once; the others when there is work for them.
        folder: Where their folders are made; None for the system's place.
        admit: Asked about each worker that is not started at once, before its first task; what it raises ends that
            worker and comes to who wanted it.
    """

    def __init__(
        self,
        setting: Setting,
        jobs: int,
        ready: int | None = None,
        folder: Path | None = None,
        admit: Callable[[WorkerProcess], None] = lambda _: None,
    ) -> None:
        self._setting, self._jobs, self._ready = setting, jobs, jobs if ready is None else min(ready, jobs)
        self._admit = admit
        self._folder = contextlib.ExitStack()
        self._root = self._folder.enter_context(work_folder("workers", folder))
        self._changed = threading.Condition()
        self._workers: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._alive = 0
        self._stopped = False
        self._aside = ThreadPoolExecutor(1)

    def __enter__(self) -> Pool:
        self._idle = [self._start() for _ in range(self._ready)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._aside.shutdown()  # before the pipes are closed that it may be reading
        for worker in self._workers:
            worker.close()
        self._folder.close()

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(self._setting, self._root / str(len(self._workers)))
        self._workers.append(worker)
        self._alive += 1
        if self._stopped:
            worker.kill()
        return worker

    @property
    def origins(self) -> Origins:
        """What all workers have read, as far as their answers say; those that have ended, too."""
        found = Origins()
        for worker in self._workers:
            found.merge(worker.origins)
        return found

    def _take(self) -> WorkerProcess:
        """A worker that is free; a new one where there are fewer than there may be; else wait for one."""
        with self._changed:
            while not (self._idle or self._alive < self._jobs or self._stopped):
                self._changed.wait()
            if self._idle:
                return self._idle.pop()
            worker = self._start()
        try:
            self._admit(worker)
        except BaseException:
            self._lose(worker)
            raise
        return worker

    def _give(self, worker: WorkerProcess) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify()

    def _lose(self, worker: WorkerProcess) -> None:
        """A worker has died; another may take its place."""
        worker.close()
        with self._changed:
            self._alive -= 1
            self._changed.notify()

    def _stop(self) -> None:
        """End every worker now, so that no thread waits for a compile whose result nobody wants."""
        self._stopped = True
        with self._changed:
            for worker in self._workers:
                worker.kill()
            self._changed.notify_all()

    def plan(
        self, targets: Sequence[str], only: Sequence[str], limit: int, memo: Path | None
    ) -> tuple[dict[str, Any], Callable[[], dict[str, str]]]:
        """What there is to build (see `worker.Worker.plan`), and a function that waits for what compiles it.

        Hashing the toolchain takes about as long as starting a worker: where a second one is ready, it does that while
        the first one plans and begins to compile.

        Raises:
            AotkernError: The sources or their declarations are wrong, or Triton is missing; the function may raise it.
        """
        request = {"do": "plan", "targets": list(targets), "only": list(only), "limit": limit}
        describe = {"do": "describe", "memo": str(memo) if memo else None}
        first = self._take()
        if not self._idle:
            plan = self._asked(first, request)
            tools = self._asked(first, describe)
            self._give(first)
            return plan, lambda: tools
        second = self._take()

        def aside() -> dict[str, str]:
            answer = self._asked(second, describe)
            self._give(second)
            return answer

        told = self._aside.submit(aside)
        plan = self._asked(first, request)
        self._give(first)
        return plan, told.result

    def _asked(self, worker: WorkerProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return worker.ask(request, self._setting.patience)
        except EOFError as error:
            raise BuildError("kernel sources", str(error)) from error
        except TimeoutError as error:
            advice = "to import them; a longer --timeout allows more, and fewer --jobs import at the same time"
            raise BuildError("kernel sources", f"{error} {advice}") from error

    def compile(
        self,
        keys: Sequence[str],
        seconds: float,
        done: Callable[[str, dict[str, Any], bytes], None],
        failed: Callable[[BuildError], None],
    ) -> None:
        """Compile these variants; `done` and `failed` are called one at a time, from several threads.

        Args:
            keys: Texts of variant keys.
            seconds: Longest time for one variant.
            done: Gets key, answer (see `worker.Worker.compile`) and the bytes of the code object.
            failed: Gets the reason why a variant has none.
        """
        report = threading.Lock()

        def one(key: str) -> None:
            if self._stopped:
                return
            try:
                answer, data = self._compile_or_again(key, seconds)
            except (BuildError, EOFError, TimeoutError) as error:
                with report:
                    if not self._stopped:
                        failed(error if isinstance(error, BuildError) else BuildError(key, str(error)))
            else:
                with report:
                    done(key, answer, data)

        with ThreadPoolExecutor(self._jobs) as threads:
            try:
                for future in [threads.submit(one, key) for key in keys]:
                    future.result()
            except BaseException:
                self._stop()
                raise

    def _compile_or_again(self, key: str, seconds: float) -> tuple[dict[str, Any], bytes]:
        """As `compile_one`, once more where the worker was killed: the machine may have had no memory for two.

        Raises:
            MachineError: The second one was killed, too. The rest as `compile_one`.
        """
        try:
            return self.compile_one(key, seconds)
        except WorkerDiedError as error:
            if not error.killed or self._stopped:
                raise
        try:
            return self.compile_one(key, seconds)
        except WorkerDiedError as error:
            raise MachineError(key, f"{error}; so did the one before it") from error

    def compile_one(self, key: str, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Compile one variant, with a worker that is free or a new one; several threads may do so at a time.

        Raises:
            BuildError: It does not compile.
            EOFError: Its worker died; the message says what it last printed.
            TimeoutError: It took too long; its worker is gone.
        """
        worker = self._take()
        try:
            answer = worker.ask({"do": "compile", "text": key, "name": "object"}, seconds)
            data = (worker.scratch / "object").read_bytes()
        except (EOFError, TimeoutError):
            self._lose(worker)
            raise
        except AotkernError as error:
            self._give(worker)
            made = MachineError if isinstance(error, MachineError) else BuildError
            raise made(key, error.reason if isinstance(error, BuildError) else str(error)) from error
        self._give(worker)
        return answer, data
