"""One run of one benchmark as a value: the machine, the versions, the command, tables of measurements, and bars.

The JSON form has one text for each value (schema `bench`); what it says of samples is checked against the samples when
it is read, so that a file of results cannot claim what its samples do not say.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from aotkern.bench.measurement import Measurement
from aotkern.bundle import publish
from aotkern.canonical import loads
from aotkern.errors import InputError, IntegrityError, Problem
from aotkern.fields import Fields

SCHEMA = "aotkern.bench/2"
Cell: TypeAlias = Measurement | str | None
"""A measurement, a word, or nothing where there is nothing to measure."""

_NUMBERS = re.compile(r"\[\n\s+(-?\d[\d.e+-]*(?:,\n\s+-?\d[\d.e+-]*)*)\n\s+\]")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        name: What the line is about.
        cells: One for each column but the first.
        note: Why cells are empty, or what is special about the line.
    """

    name: str
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Measurements side by side.

    Attributes:
        title: What is compared.
        columns: Headings; the first is that of the names of the rows.
        rows: At least one.

    Raises:
        InputError: No rows, or one whose cells are not as many as the headings say.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row.cells) != len(self.columns) - 1]
        if wrong or not self.rows:
            found = f"{len(wrong[0].cells)} in {wrong[0].name!r}" if wrong else "no rows"
            raise InputError.one(f"table {self.title!r}", f"rows of {len(self.columns) - 1} cells", found)

    def cell(self, row: str, column: str) -> Cell:
        """One cell by its names.

        Raises:
            InputError: There is none of these names.
        """
        for line in self.rows:
            if line.name == row and column in self.columns[1:]:
                return line.cells[self.columns.index(column) - 1]
        raise InputError.one(f"table {self.title!r}", "names of a row and a column", f"{row!r}, {column!r}")


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise, and what was measured of it.

    Attributes:
        what: The quantity.
        unit: Of both numbers.
        bound: The promise.
        at_most: Whether the promise is kept below the bound, or above it.
        measured: The median, or None where it could not be measured.
        why: What must be said beside the number: why it misses, or why there is none.
    """

    what: str
    unit: str
    bound: float
    at_most: bool
    measured: float | None
    why: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None when nothing was measured."""
        if self.measured is None:
            return None
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a benchmark ran.

    Attributes:
        processor: Its model and architecture.
        cores: How many this process may use.
        memory: Bytes.
        gpu: The GPU's name, with their number where there are several, or empty.
        driver: Version of its driver, or empty.
    """

    processor: str
    cores: int
    memory: int
    gpu: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one benchmark.

    Attributes:
        benchmark: Its name.
        command: How to run it again.
        date: When it began, in UTC: `2025-01-31T12:00:00Z`.
        load: The one-minute load average of the machine when it began: what else ran there.
        seconds: How long all of it took.
        machine: Where it ran.
        versions: Of what took part, by name, sorted.
        tables: What was measured.
        bars: What was promised.
        notes: What a reader must know to understand the figures.
        revision: The git revision of the code that was measured, with `+changes` behind it where files differed from
            it; empty where it was not in a repository.
        bundles: What was loaded, by file name: the digest of its manifest, which names every code object.
    """

    benchmark: str
    command: str
    date: str
    load: float
    seconds: float
    machine: Machine
    versions: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    bars: tuple[Bar, ...] = ()
    notes: tuple[str, ...] = ()
    revision: str = ""
    bundles: tuple[tuple[str, str], ...] = ()

    def table(self, title: str) -> Table:
        """The table of this title.

        Raises:
            InputError: There is none.
        """
        for table in self.tables:
            if table.title == title:
                return table
        raise InputError.one(f"benchmark {self.benchmark}", f"a table {title!r}", str([t.title for t in self.tables]))

    def to_json(self) -> dict[str, Any]:
        """Plain values (schema `bench`)."""
        return {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "command": self.command,
            "date": self.date,
            "load": float(self.load),
            "seconds": float(self.seconds),
            "machine": {name: getattr(self.machine, name) for name in _MACHINE},
            "versions": dict(self.versions),
            "tables": [
                {
                    "title": table.title,
                    "columns": list(table.columns),
                    "rows": [
                        {"name": row.name, "cells": [_cell(cell) for cell in row.cells], "note": row.note}
                        for row in table.rows
                    ],
                }
                for table in self.tables
            ],
            "bars": [_bar_json(bar) for bar in self.bars],
            "notes": list(self.notes),
            "revision": self.revision,
            "bundles": dict(self.bundles),
        }

    def dumps(self) -> str:
        """The text of a file of results: sorted keys, a line for each list of numbers."""
        text = json.dumps(self.to_json(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        return _NUMBERS.sub(lambda match: "[" + ", ".join(match[1].replace(",", " ").split()) + "]", text) + "\n"

    def write(self, folder: Path) -> Path:
        """Write `BENCHMARK.json` into a folder, whole or not at all.

        Raises:
            InputError: It cannot be written.
        """
        path = folder / f"{self.benchmark}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            publish(path, self.dumps().encode())
        except OSError as error:
            raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error
        return path

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read a file of results.

        Raises:
            InputError: It cannot be read.
            IntegrityError: It is no such file, or says what its samples do not say.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError.one(str(path), "a file of results", error.strerror or str(error)) from error
        return cls.from_json(loads(data, str(path), decimals=True), str(path))

    @classmethod
    def from_json(cls, value: object, where: str = "benchmark") -> Run:
        """The inverse of `to_json`.

        Raises:
            IntegrityError: With every problem.
        """
        problems: list[Problem] = []
        form = Fields(value, where, _RUN, problems)
        if form.get("schema") != SCHEMA:
            problems.append(Problem(f"{where}.schema", SCHEMA, repr(form.get("schema"))[:100]))
        run = cls(
            benchmark=form.text("benchmark"),
            command=form.text("command"),
            date=form.text("date"),
            load=form.number("load"),
            seconds=form.number("seconds"),
            machine=_machine(form),
            versions=tuple(sorted(form.texts("versions").items())),
            tables=tuple(_table(table, problems) for table in form.items("tables", ("title", "columns", "rows"))),
            bars=tuple(_bar(bar, problems) for bar in form.items("bars", (*_BAR, "met"))),
            notes=form.labels("notes"),
            revision=form.label("revision"),
            bundles=tuple(sorted(form.texts("bundles").items())),
        )
        if problems:
            raise IntegrityError(problems)
        return run


_MACHINE = ("processor", "cores", "memory", "gpu", "driver")
_BAR = ("what", "unit", "bound", "at_most", "measured", "why")
_RUN = (
    "schema", "benchmark", "command", "date", "load", "seconds", "machine", "versions", "tables", "bars", "notes",
    "revision", "bundles",
)  # fmt: skip


def _cell(cell: Cell) -> Any:
    return cell.to_json() if isinstance(cell, Measurement) else cell


def _bar_json(bar: Bar) -> dict[str, Any]:
    measured = None if bar.measured is None else float(bar.measured)
    same = {name: getattr(bar, name) for name in ("what", "unit", "at_most", "why", "met")}
    return {**same, "bound": float(bar.bound), "measured": measured}


def _machine(form: Fields) -> Machine:
    part = form.subset("machine", _MACHINE, _MACHINE)
    return Machine(
        part.text("processor"), part.count("cores"), part.count("memory"), part.label("gpu"), part.label("driver")
    )


def _table(form: Fields, problems: list[Problem]) -> Table:
    columns = form.labels("columns")
    rows = []
    for row in form.items("rows", ("name", "cells", "note")):
        cells = row.get("cells")
        if not isinstance(cells, list) or len(cells) != len(columns) - 1:
            problems.append(Problem(f"{row.where}.cells", f"a list of {len(columns) - 1}", repr(cells)[:60]))
            cells = []
        rows.append(Row(row.text("name"), tuple(_read(cell, row.where, problems) for cell in cells), row.label("note")))
    try:
        return Table(form.text("title"), columns, tuple(rows))
    except InputError as error:
        problems.extend(error.problems)
        return Table("-", ("-",), (Row("-", ()),))


def _read(cell: object, where: str, problems: list[Problem]) -> Cell:
    return cell if cell is None or isinstance(cell, str) else Measurement.from_json(cell, f"{where}.cells", problems)


def _bar(form: Fields, problems: list[Problem]) -> Bar:
    measured = None if form.get("measured") is None else form.number("measured")
    bar = Bar(
        form.text("what"), form.text("unit"), form.number("bound"), form.flag("at_most"), measured, form.label("why")
    )
    if form.get("met") is not bar.met:
        problems.append(Problem(f"{form.where}.met", str(bar.met), repr(form.get("met"))[:60]))
    return bar
