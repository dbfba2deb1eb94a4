"""Event lines as values: processes, compiles and tunings. A damaged line costs that line, and is counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from aotkern.audit.jit import eventfields as fields
from aotkern.errors import AotkernError
from aotkern.spec import ArgumentSpec, Constant, Fixed, VariantKey

FORMAT = "aotkern.jit-events/1"


class Outcome(str, Enum):
    """How a compile ended."""

    COMPILED = "compiled"
    CACHED = "cached"
    FINISHED = "finished"
    FAILED = "failed"
    REFUSED = "refused"
    UNFINISHED = "unfinished"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Compile:
    """A specialisation that a process met for the first time.

    Attributes:
        process: Place of its process in the log.
        at: Start, nanoseconds since 1970.
        route: `jit`, `warmup`, `direct`, `autotune` or `launcher`.
        phase: The phase at its start.
        rank: Rank of the process in its job, or None.
        kernel: The kernel's name.
        module: The module that defines it.
        key: The text of its variant key: equal texts are the same variant.
        arguments: The specialisation.
        options: Compile options by their canonical texts.
        values: Argument values of the call: canonical texts, objects for tensors, lists for tuples.
        stack: The program's frames, `module:function:line`, innermost first.
        constexprs: Parameters that are declared `tl.constexpr`.
        unspecialised: Parameters that are declared `do_not_specialize`.
        heuristic: Parameters that a heuristic computed.
        tuned: Parameters and options that an autotuner set.
        outcome: How it ended.
        seconds: How long it took; 0 where only its start is known.
        object: Digest of the code object, where it is known.
        error: Why it failed or was refused.
    """

    process: int
    at: int
    route: str
    phase: str
    rank: int | None
    kernel: str
    module: str
    key: str
    arguments: tuple[tuple[str, ArgumentSpec], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stack: tuple[str, ...] = ()
    constexprs: frozenset[str] = frozenset()
    unspecialised: frozenset[str] = frozenset()
    heuristic: frozenset[str] = frozenset()
    tuned: frozenset[str] = frozenset()
    outcome: Outcome = Outcome.UNFINISHED
    seconds: float = 0.0
    object: str | None = None
    error: str | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two compiles the same variant."""
        return self.module, self.key


@dataclass(frozen=True, slots=True)
class Tuning:
    """An autotuner that benchmarked its candidates for a new key.

    Attributes:
        process: Place of its process in the log.
        at: Start, nanoseconds since 1970.
        phase: The phase at its start.
        rank: Rank of the process in its job, or None.
        kernel: The tuned kernel.
        module: The module that defines it.
        key: The values that the tuner keys on, by argument.
        configs: How many candidates it had.
        seconds: How long it took; 0 where it did not end.
        best: The candidate that won, as text.
    """

    process: int
    at: int
    phase: str
    rank: int | None
    kernel: str
    module: str
    key: Mapping[str, str]
    configs: int
    seconds: float = 0.0
    best: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process that wrote events.

    Attributes:
        pid: Its number.
        host: Its machine.
        command: Its command line, shortened.
        triton: Versions of Triton that it imported; empty in a forked child, which inherits the import.
    """

    pid: int
    host: str
    command: str
    triton: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """All events of a run.

    Attributes:
        processes: Who wrote.
        compiles: Compiles by time.
        tunings: Tunings by time.
        watched: What was observed, in words.
        missing: What a Triton did not offer, with the consequence.
        foreign: Other compilers that were imported, by package.
        interpreted: Processes that interpret kernels instead of compiling them.
        faults: What went wrong in the watch itself.
        lost: Lines that are damaged or could not be written.
    """

    processes: tuple[Process, ...] = ()
    compiles: tuple[Compile, ...] = ()
    tunings: tuple[Tuning, ...] = ()
    watched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    interpreted: int = 0
    faults: tuple[str, ...] = ()
    lost: int = 0

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of Triton that were watched."""
        return tuple(dict.fromkeys(version for process in self.processes for version in process.triton))


def read(files: Iterable[Iterable[str | Mapping[str, Any]]]) -> Log:
    """The log of several processes, each as its lines (or as events, where they were kept in memory)."""
    logs = [_read_one(number, lines) for number, lines in enumerate(files)]

    def unique(rows: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rows))

    return Log(
        processes=tuple(process for log in logs for process in log.processes),
        compiles=tuple(sorted((c for log in logs for c in log.compiles), key=lambda c: c.at)),
        tunings=tuple(sorted((t for log in logs for t in log.tunings), key=lambda t: t.at)),
        watched=unique(row for log in logs for row in log.watched),
        missing=unique(row for log in logs for row in log.missing),
        foreign=unique(row for log in logs for row in log.foreign),
        interpreted=sum(log.interpreted for log in logs),
        faults=unique(row for log in logs for row in log.faults),
        lost=sum(log.lost for log in logs),
    )


def _events(lines: Iterable[str | Mapping[str, Any]]) -> Iterator[Mapping[str, Any] | None]:
    for line in lines:
        if isinstance(line, Mapping):
            yield line
        elif line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def _read_one(number: int, lines: Iterable[str | Mapping[str, Any]]) -> Log:
    reader = _Reader(number)
    for event in _events(lines):
        try:
            if event is None:
                raise ValueError("a damaged line")
            reader.lost += fields.integer(event.get("lost", 0))
            reader.take(event)
        except (KeyError, ValueError):
            reader.lost += 1
    return reader.log()


class _Reader:
    """Gathers the events of one process."""

    def __init__(self, number: int) -> None:
        self.number, self.lost, self.interpreted = number, 0, 0
        self.process = Process(0, "", "")
        self.compiles: dict[int, Compile] = {}
        self.tunings: dict[int, Tuning] = {}
        self.watched: list[str] = []
        self.missing: list[str] = []
        self.foreign: list[str] = []
        self.faults: list[str] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """One event; kinds that are not known here come from later versions, and say nothing about compiles."""
        match event["event"]:
            case "start":
                self.compiles[fields.integer(event["id"])] = _compile(self.number, event)
            case "end" if (number := fields.integer(event["id"])) in self.compiles:
                self.compiles[number] = _ended(self.compiles[number], event)
            case "tune-start":
                self.tunings[fields.integer(event["id"])] = _tuning(self.number, event)
            case "tune-end" if (number := fields.integer(event["id"])) in self.tunings:
                seconds, best = fields.seconds(event["seconds"]), fields.optional_text(event.get("best"))
                self.tunings[number] = replace(self.tunings[number], seconds=seconds, best=best)
            case _:
                self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "process":
                host, command = fields.text(event["host"]), fields.text(event.get("command", ""))
                self.process = Process(fields.integer(event["pid"]), host, command)
            case "triton":
                version, watched, missing = (
                    fields.text(event["version"]),
                    fields.texts(event["watched"]),
                    fields.texts(event["missing"]),
                )
                self.process = replace(self.process, triton=(*self.process.triton, version))
                self.watched += watched
                self.missing += missing
            case "interpreter":
                self.interpreted = 1
            case "foreign":
                self.foreign.append(fields.text(event["system"]))
            case "fault":
                self.faults.append(fields.text(event["message"]))

    def log(self) -> Log:
        """What was gathered."""
        return Log(
            processes=(self.process,),
            compiles=tuple(self.compiles.values()),
            tunings=tuple(self.tunings.values()),
            watched=tuple(self.watched),
            missing=tuple(self.missing),
            foreign=tuple(self.foreign),
            interpreted=self.interpreted,
            faults=tuple(self.faults),
            lost=self.lost,
        )


def _compile(process: int, event: Mapping[str, Any]) -> Compile:
    def names(field_name: str) -> frozenset[str]:
        return frozenset(fields.texts(event.get(field_name, ())))

    options = fields.table(event.get("options", {}))
    return Compile(
        process=process,
        at=fields.integer(event["at"]),
        route=fields.text(event["route"]),
        phase=fields.text(event["phase"]),
        rank=fields.rank(event),
        kernel=fields.text(event["kernel"]),
        module=fields.text(event.get("module", "")),
        key=fields.text(event["key"]),
        arguments=tuple(
            (name, parse_spec(text)) for name, text in map(fields.pair, fields.sequence(event.get("arguments", ())))
        ),
        options={name: fields.constant(text) for name, text in options.items()},
        values={name: fields.argument(value) for name, value in fields.table(event.get("values", {})).items()},
        stack=tuple(fields.texts(event.get("stack", ()))),
        constexprs=names("constexprs"),
        unspecialised=names("unspecialised"),
        heuristic=names("heuristic"),
        tuned=names("tuned"),
    )


def parse_spec(text: str) -> ArgumentSpec:
    """One argument of a key, such as `:*fp32:DS` or `=16`; what is no such text stays apart as a constant."""
    try:
        return VariantKey.parse(f"k[hip:gfx942](a{text})").arguments[0][1]
    except AotkernError:
        return Fixed(Constant.of(text))


def _ended(begun: Compile, event: Mapping[str, Any]) -> Compile:
    return replace(
        begun,
        outcome=Outcome(event["outcome"]),
        seconds=fields.seconds(event["seconds"]),
        object=fields.optional_text(event.get("object")),
        error=fields.optional_text(event.get("error")),
    )


def _tuning(process: int, event: Mapping[str, Any]) -> Tuning:
    return Tuning(
        process=process,
        at=fields.integer(event["at"]),
        phase=fields.text(event["phase"]),
        rank=fields.rank(event),
        kernel=fields.text(event["kernel"]),
        module=fields.text(event["module"]),
        key={name: fields.text(text) for name, text in fields.table(event["tuning_key"]).items()},
        configs=fields.integer(event["configs"]),
    )


def ranks(compiles: Sequence[Compile | Tuning]) -> dict[str, int]:
    """How many of these each rank had; processes without a rank count as one rank by their place in the log."""
    counts: dict[str, int] = {}
    for row in compiles:
        name = str(row.rank) if row.rank is not None else f"process {row.process}"
        counts[name] = counts.get(name, 0) + 1
    return counts
