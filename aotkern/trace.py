"""A trace: what a program asked Triton's compiler for, as values and as canonical bytes. No IO.

One JSON object a line, sorted, each line once, so that traces can be merged, compared and kept in git:

    {"format":"aotkern.trace","version":2}
    {"variant":"pkg.mod.add[cuda:90](x:*fp32:D,n:i32,B=64){num_warps=8}","module":"pkg.mod","source":"sha256:...",...}
    {"choice":"pkg.mod.add","config":{"B":"64","num_warps":"8"},"key":["1024"],"source":"sha256:...",...}
    {"unbuildable":"__main__.outer.<locals>.inner","kind":"unsupported","reason":"...","target":"cuda:90"}

A kernel that was generated at run time has a `text` as well: a module that defines it.

A trace holds types, classes and compile-time constants, and names of modules; it holds no tensor, no address, no path
and no value of a run-time argument, except for those integers and texts that an autotuner's key is made of. Reasons
are words of aotkern and names of types: no `repr` and no message of somebody else's stands in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aotkern.canonical import dumps, loads
from aotkern.digest import Digest
from aotkern.errors import IntegrityError, Problem, ProblemsError
from aotkern.fields import Fields
from aotkern.spec import VariantKey
from aotkern.target import Target

FORMAT = "aotkern.trace"
VERSION = 2
TUNING = "tuning"
"""The field of a bundle's provenance that holds autotuners' choices, as rows of a trace."""
GENERATED = "generated_"
"""How the names of modules begin that stand in a trace as text; 12 digits of the text's digest follow."""

UNSUPPORTED = "unsupported"
KINDS = {
    UNSUPPORTED: "no build can express it",
    "compile": "it does not compile",
    "unnamed": "no module holds it under a name",
    "generated": "its text is executed only where that is asked for",
    "import": "its module cannot be imported where it is built",
    "absent": "its module does not have it any more",
    "stale": "its source has changed since it was recorded",
    "values": "a value that it reads differs from the one that was recorded",
    "untuned": "its autotuner made no choice that can be used",
    "excluded": "somebody left it out",
}
"""Why something is left out."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A specialisation that was compiled, or found in a cache.

    Attributes:
        key: The variant; its kernel is named by module and qualified name, its options are those that differ from the
            back end's defaults.
        module: The module that defines the kernel.
        source: Digest of the kernel with everything it uses; constants that name functions have digests of their own.
        constexprs: Parameters that are `tl.constexpr`, sorted.
        heuristic: Those of them that a `triton.heuristics` computed.
        trial: Whether only an autotuner's benchmark asked for it.
        triton: Version of the Triton that recorded it.
        text: Where the module was generated at run time and cannot be imported: a module, named `GENERATED` and a
            digest, that defines the kernel. A build executes it only where somebody asked for that.
        reads: Values that the kernel and its helpers read from modules, sorted: `module:NAME` and the canonical text of
            a constant, or `#` and a digest of anything else. A build binds the constants, since another machine's may
            differ.
    """

    key: VariantKey
    module: str
    source: Digest
    constexprs: tuple[str, ...] = ()
    heuristic: tuple[str, ...] = ()
    trial: bool = False
    triton: str = ""
    text: str = ""
    reads: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, for one line."""
        return {
            **({"text": self.text} if self.text else {}),
            **({"reads": dict(self.reads)} if self.reads else {}),
            "variant": str(self.key),
            "module": self.module,
            "source": str(self.source),
            "constexprs": list(self.constexprs),
            "heuristic": list(self.heuristic),
            "trial": self.trial,
            "triton": self.triton,
        }


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an autotuner chose for one tuning key.

    Attributes:
        kernel: Module and qualified name of the kernel under the autotuner.
        source: Digest of that kernel.
        target: Where it was measured.
        key: The tuning key: values of the key arguments, then element types, as canonical texts of constants.
        config: The chosen configuration: parameters and options, sorted, by canonical texts.
        tuner: Digest of what the autotuner is: its configurations, its key, its pruning. Nothing in older traces.
        paper: Whether a device on paper made the times up, so that the choice says nothing.
    """

    kernel: str
    source: Digest
    target: str
    key: tuple[str, ...]
    config: tuple[tuple[str, str], ...]
    tuner: str = ""
    paper: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values, for one line."""
        return {
            "choice": self.kernel,
            "source": str(self.source),
            "target": self.target,
            "key": list(self.key),
            "config": dict(self.config),
            **({"tuner": self.tuner} if self.tuner else {}),
            **({"paper": True} if self.paper else {}),
        }


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """Something that was asked for and is not built, from the recording to the build's last line.

    Attributes:
        kernel: Name of the kernel, or the key of one variant.
        target: What it was for; nothing where that does not matter.
        reason: Why, in words.
        kind: Why, as one of `KINDS`.
    """

    kernel: str
    target: str
    reason: str
    kind: str = UNSUPPORTED

    def to_json(self) -> dict[str, Any]:
        """Plain values, for one line."""
        return {"unbuildable": self.kernel, "target": self.target, "reason": self.reason, "kind": self.kind}


Row = Recorded | Chosen | Unbuildable


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows without repetition, each kind sorted by its text."""

    recorded: tuple[Recorded, ...] = ()
    chosen: tuple[Chosen, ...] = ()
    unbuildable: tuple[Unbuildable, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Trace:
        """Sort and merge.

        A specialisation that was asked for outside a benchmark counts as asked for; of two choices of an autotuner for
        one tuning key the later one counts, and one that was made on paper never counts before one that was measured.
        """
        recorded: dict[Recorded, bool] = {}
        chosen: dict[tuple[str, Digest, str, str, tuple[str, ...]], Chosen] = {}
        unbuildable: dict[Unbuildable, None] = {}
        for row in rows:
            if isinstance(row, Recorded):
                asked = replace(row, trial=False)
                recorded[asked] = recorded.get(asked, True) and row.trial
            elif isinstance(row, Chosen):
                place = row.kernel, row.source, row.target, row.tuner, row.key
                if place not in chosen or chosen[place].paper or not row.paper:
                    chosen[place] = row
            else:
                unbuildable[row] = None
        return cls(
            tuple(sorted((replace(row, trial=trial) for row, trial in recorded.items()), key=_text)),
            tuple(sorted(chosen.values(), key=_text)),
            tuple(sorted(unbuildable, key=_text)),
        )

    @classmethod
    def parse(cls, data: bytes, where: str) -> Trace:
        """Read a trace.

        Raises:
            IntegrityError: Not a trace of this version; every bad line is reported.
        """
        lines = data.split(b"\n")
        head = loads(lines[0], f"{where}: line 1") if data else None
        if head != {"format": FORMAT, "version": VERSION}:
            raise IntegrityError.one(f"{where}: line 1", f"{FORMAT} version {VERSION}", repr(head)[:100])
        rows: list[Row] = []
        problems: list[Problem] = []
        for number, line in enumerate(lines[1:], 2):
            try:
                rows += [_row(loads(line, f"{where}: line {number}"), f"{where}: line {number}")] if line else []
            except ProblemsError as error:
                problems += error.problems
        if problems:
            raise IntegrityError(problems)
        return cls.of(rows)

    def to_bytes(self) -> bytes:
        """The canonical bytes."""
        rows: tuple[Row, ...] = (*self.recorded, *self.chosen, *self.unbuildable)
        lines = [dumps({"format": FORMAT, "version": VERSION}), *map(_text, rows)]
        return ("\n".join(lines) + "\n").encode()


def merge(traces: Iterable[Trace]) -> Trace:
    """All rows of several traces."""
    rows: list[Row] = []
    for trace in traces:
        rows += [*trace.recorded, *trace.chosen, *trace.unbuildable]
    return Trace.of(rows)


def choices(text: str, where: str) -> tuple[Chosen, ...]:
    """Read the autotuners' choices of a bundle's provenance.

    Raises:
        IntegrityError: They are none.
    """
    found: list[Chosen] = []
    for value in loads(text.encode(), where) if text else ():
        item = _row(value, where)
        if not isinstance(item, Chosen):
            raise IntegrityError.one(where, "choices of autotuners", type(item).__name__)
        found.append(item)
    return tuple(found)


def origins(borrowed: Iterable[str], paper: int) -> str:
    """Where choices come from, if not from a measurement on the target that they are used on, in words.

    Args:
        borrowed: For each choice of another target, that target.
        paper: How many were made on paper.
    """
    counts = Counter(borrowed)
    parts = [f"{count} borrowed from {target}" for target, count in sorted(counts.items())]
    parts += [f"{paper} made on paper"] if paper else []
    return f" ({', '.join(parts)})" if parts else ""


def row(value: Mapping[str, Any], where: str) -> Row:
    """Read the plain values of one line.

    Raises:
        IntegrityError: Not a row of a trace.
    """
    return _row(value, where)


def _text(item: Row) -> str:
    return dumps(item.to_json())


def _row(value: object, where: str) -> Row:
    problems: list[Problem] = []
    kinds = ("variant", "choice", "unbuildable")
    kind = next((name for name in kinds if isinstance(value, dict) and name in value), "")
    found: Row
    if kind == "variant":
        required = ("variant", "module", "source", "constexprs", "heuristic", "trial", "triton")
        names = _there(value, required, "text", "reads")
        form = Fields(value, where, names, problems)
        key, source = form.parsed("variant", VariantKey.parse), form.parsed("source", Digest.parse)
        found = Recorded(
            key or VariantKey("", _NOWHERE, ()),
            form.text("module"),
            source or _NOTHING,
            _texts(form, "constexprs"),
            _texts(form, "heuristic"),
            form.flag("trial"),
            form.label("triton"),
            form.text("text") if "text" in names else "",
            tuple(sorted(form.texts("reads").items())) if "reads" in names else (),
        )
        named = f"{GENERATED}{Digest.of(found.text.encode()).hex[:12]}"
        if found.text and found.module != named:
            problems.append(Problem(f"{where}: module", f"{named}, by the digest of its text", found.module))
        if key and not key.kernel.startswith(f"{found.module}."):
            problems.append(Problem(f"{where}: variant", f"a kernel of module {found.module}", key.kernel))
    elif kind == "choice":
        names = _there(value, ("choice", "source", "target", "key", "config"), "tuner", "paper")
        form = Fields(value, where, names, problems)
        found = Chosen(
            form.text("choice"),
            form.parsed("source", Digest.parse) or _NOTHING,
            str(form.parsed("target", Target.parse)),
            _texts(form, "key"),
            tuple(sorted(form.texts("config").items())),
            form.text("tuner") if "tuner" in names else "",
            form.flag("paper") if "paper" in names else False,
        )
    else:
        names = _there(value, ("unbuildable", "target", "reason"), "kind")
        form = Fields(value, where, names, problems)
        why = form.text("kind") if "kind" in names else UNSUPPORTED
        found = Unbuildable(form.text("unbuildable"), form.text("target"), form.text("reason"), why)
        if why not in KINDS:
            problems.append(Problem(f"{where}: kind", f"one of {', '.join(KINDS)}", repr(why)[:100]))
    if problems:
        raise IntegrityError(problems)
    return found


def _there(value: object, required: tuple[str, ...], *optional: str) -> tuple[str, ...]:
    """The fields of a row: those that it must have, and those of the others that it has."""
    return (*required, *(name for name in optional if isinstance(value, dict) and name in value))


def _texts(form: Fields, name: str) -> tuple[str, ...]:
    value = form.get(name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    form.problems.append(Problem(f"{form.where}: {name}", "a list of texts", repr(value)[:100]))
    return ()


_NOWHERE = Target.parse("gfx942")
_NOTHING = Digest.of(b"")
