"""What is replayed: requests, a scheduler's limits, a server, and the arms to compare. Read from TOML.

    version = 1
    name = "8k in, 1k out"
    server = "aotkern_kernels.replayed"   # a module with open_server(launcher, device, settings)

    [requests]
    input = 8192                          # tokens of a prompt: uniform from input * range_ratio to input
    output = 1024
    range_ratio = 0.8
    seed = 0
    warmup = 128
    scored = 640
    concurrency = 64

    [scheduler]
    batched_tokens = 8192
    sequences = 1024
    captured_rows = [1, 2, 4, 8]          # decode steps of up to so many rows run in captured graphs

    [settings]                            # what the server is told in every arm
    heads = 16

    [arms.legacy]
    target = "gfx950"
    kind = "jit"                          # or "bundle"
    settings = { design = "gfx942" }      # what it is told beside that

    [[sweep]]                             # in place of requests, or before them: single steps of prompts
    prompts = [8192, 4096]                # their lengths

Nothing here knows what the settings mean: they go to the server as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotkern import tomlfile
from aotkern.audit.replay.lengths import Stream
from aotkern.errors import InputError, Problem
from aotkern.fields import Fields
from aotkern.target import Target

VERSION = 1
JIT, BUNDLE = "jit", "bundle"


@dataclass(frozen=True, slots=True)
class Request:
    """A request: tokens of its prompt, and tokens that it generates."""

    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by their numbers; lengths come from the seed.

    Attributes:
        input: Longest prompt.
        output: Most generated tokens.
        range_ratio: The shortest of both, as a part of the longest.
        seed: Of the scored lengths; the warm-up takes the next one.
        warmup: Requests before the scored phase.
        scored: Requests of the scored phase.
        concurrency: Most requests in flight.
    """

    input: int
    output: int
    range_ratio: float
    seed: int
    warmup: int
    scored: int
    concurrency: int

    def drawn(self, count: int, seed: int) -> tuple[Request, ...]:
        """Requests with lengths drawn uniformly: all prompts first, then all outputs."""
        stream = Stream(seed)
        prompts = stream.integers(max(int(self.input * self.range_ratio), 1), self.input + 1, count)
        outputs = stream.integers(max(int(self.output * self.range_ratio), 1), self.output + 1, count)
        return tuple(Request(*pair) for pair in zip(prompts, outputs, strict=True))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold.

    Attributes:
        batched_tokens: Most tokens of a step.
        sequences: Most requests of a step.
        captured_rows: Row counts for which decode steps are captured in graphs, ascending.
    """

    batched_tokens: int
    sequences: int
    captured_rows: tuple[int, ...]

    def captured(self, rows: int) -> int | None:
        """The captured row count that a decode step of so many rows runs as; None when none is large enough."""
        return next((size for size in self.captured_rows if size >= rows), None)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve the workload.

    Attributes:
        name: Its name.
        target: What kernels are compiled for.
        kind: `jit` (Triton compiles what is missing) or `bundle` (prebuilt variants).
        settings: What the server is told.
    """

    name: str
    target: Target
    kind: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload with its arms.

    Attributes:
        name: For people.
        server: The module whose `open_server` is replayed.
        requests: What is served; None for a sweep alone.
        limits: What a step may hold.
        arms: What is compared.
        sweep: Steps that each run some whole prompts, by their lengths.
    """

    name: str
    server: str
    requests: Requests | None
    limits: Limits
    arms: tuple[Arm, ...]
    sweep: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def read(cls, path: Path) -> Workload:
        """Read a workload.

        Raises:
            InputError: The file cannot be read, or anything in it is wrong; all problems at once.
        """
        return cls.from_values(tomlfile.read(path, "a workload"), str(path))

    @classmethod
    def from_values(cls, value: Mapping[str, Any], where: str) -> Workload:
        """As `read`, from parsed TOML."""
        problems = list(tomlfile.version_problems(value, where, VERSION))
        settings = value.get("settings", {})
        optional = tuple(name for name in ("requests", "sweep") if name in value)
        names = ("version", "name", "server", "scheduler", "arms", *optional)
        form = Fields({key: item for key, item in value.items() if key != "settings"}, where, names, problems)
        if not optional:
            problems.append(Problem(where, "requests, or a sweep", "neither"))
        arms = form.get("arms") if isinstance(form.get("arms"), dict) else {}
        if not arms or not isinstance(arms, dict) or not isinstance(settings, dict):
            problems.append(Problem(where, "tables [arms.NAME] and [settings]", "none, or something else"))
            arms, settings = {}, {}
        workload = cls(
            name=form.text("name"),
            server=form.text("server"),
            requests=_requests(form.get("requests"), f"{where}: requests", problems)
            if "requests" in optional
            else None,
            limits=_limits(form.get("scheduler"), f"{where}: scheduler", problems),
            arms=tuple(_arm(name, row, settings, f"{where}: arms.{name}", problems) for name, row in arms.items()),
            sweep=_sweep(form.get("sweep"), f"{where}: sweep", problems) if "sweep" in optional else (),
        )
        if problems:
            raise InputError(problems)
        return workload

    def arm(self, name: str) -> Arm:
        """The arm of this name.

        Raises:
            InputError: There is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise InputError.one("--arm", f"one of {', '.join(arm.name for arm in self.arms)}", repr(name))


def _requests(value: object, where: str, problems: list[Problem]) -> Requests:
    names = ("input", "output", "range_ratio", "seed", "warmup", "scored", "concurrency")
    form = Fields(value, where, names, problems)
    ratio = form.get("range_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
        problems.append(Problem(f"{where}.range_ratio", "a number above 0, at most 1", repr(ratio)[:60]))
        ratio = 1.0
    counts = {name: form.count(name, bits=32) for name in names if name != "range_ratio"}
    for name in ("input", "output", "scored", "concurrency"):
        if not counts[name]:
            problems.append(Problem(f"{where}.{name}", "at least 1", "0"))
    return Requests(range_ratio=float(ratio), **counts)


def _sweep(value: object, where: str, problems: list[Problem]) -> tuple[tuple[int, ...], ...]:
    found = []
    for number, row in enumerate(value if isinstance(value, list) else [value]):
        prompts = row.get("prompts") if isinstance(row, dict) and len(row) == 1 else None
        if not isinstance(prompts, list) or not prompts or not all(type(n) is int and n > 0 for n in prompts):
            problems.append(Problem(f"{where} {number + 1}", "prompts = [positive integers]", repr(row)[:60]))
        else:
            found.append(tuple(prompts))
    return tuple(found)


def _limits(value: object, where: str, problems: list[Problem]) -> Limits:
    form = Fields(value, where, ("batched_tokens", "sequences", "captured_rows"), problems)
    rows = form.get("captured_rows")
    if not isinstance(rows, list) or not all(type(row) is int and row > 0 for row in rows) or rows != sorted(set(rows)):
        problems.append(Problem(f"{where}.captured_rows", "ascending positive integers", repr(rows)[:60]))
        rows = []
    tokens, sequences = form.count("batched_tokens", bits=32), form.count("sequences", bits=32)
    if not tokens or not sequences:
        problems.append(Problem(where, "at least 1 token and 1 sequence in a step", f"{tokens} and {sequences}"))
    return Limits(max(tokens, 1), max(sequences, 1), tuple(rows))


def _arm(name: str, value: object, common: Mapping[str, Any], where: str, problems: list[Problem]) -> Arm:
    optional = ("settings",) if isinstance(value, dict) and "settings" in value else ()
    form = Fields(value, where, ("target", "kind", *optional), problems)
    kind, own, target = form.text("kind"), form.get("settings") if optional else {}, Target.parse("gfx950")
    if kind not in (JIT, BUNDLE) or not isinstance(own, dict):
        problems.append(Problem(where, f'kind = "{JIT}" or "{BUNDLE}", and a table `settings`', repr(kind)[:60]))
        own = {}
    try:
        target = Target.parse(form.text("target"), f"{where}.target")
    except InputError as error:
        problems.extend(error.problems)
    return Arm(name, target, kind, {**common, **own})
