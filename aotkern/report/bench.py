"""Benchmarks for people: plain text for a terminal, Markdown for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotkern.bench import Bar, Measurement, Run, Table
from aotkern.report.plain import amount, table


def text(run: Run) -> str:
    """All tables, bars and notes of a run, under the facts of its machine."""
    parts = [f"{run.benchmark}: {run.command}\n{facts(run)}"]
    for part in run.tables:
        rows = [part.columns, *((row.name, *map(_cell, row.cells)) for row in part.rows)]
        notes = [f"{row.name}: {row.note}" for row in part.rows if row.note]
        parts.append("\n".join([part.title, table(rows, " " + "r" * (len(part.columns) - 1)), *notes]))
    if run.bars:
        parts.append(table([(what, promised, found, said) for what, promised, found, said in bars(run.bars)]))
    parts += [f"note: {note}" for note in run.notes]
    return "\n\n".join(parts)


def markdown(run: Run) -> str:
    """The same as Markdown, without a heading of its own."""
    parts = [f"`{run.command}`\n\n{facts(run)}."]
    for part in run.tables:
        notes = "".join(f"\n{row.name}: {row.note}.\n" for row in part.rows if row.note)
        parts.append(f"**{part.title}**\n\n{_grid(part)}\n{notes}".rstrip("\n"))
    if run.bars:
        parts.append(_rows([("promise", "bound", "measured", ""), *bars(run.bars)], "---|---:|---:|---"))
    parts += run.notes
    return "\n\n".join(parts) + "\n"


def facts(run: Run) -> str:
    """The line that says where, when and what: machine, versions, load, date, revision, bundles."""
    machine = run.machine
    gpu = [f"{machine.gpu}, driver {machine.driver}"] if machine.gpu else []
    where = [f"{machine.processor}, {machine.cores} cores", f"{machine.memory / 2**30:.0f} GiB", *gpu]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions)
    revision = f"revision {run.revision}" if run.revision else "revision not noted"
    bundles = "".join(f"; {name} {digest[:19]}" for name, digest in run.bundles)
    when = f"load at the start {run.load}; {run.date}, {run.seconds:.0f} s"
    return f"{'; '.join(where)}; {versions}; {when}; {revision}{bundles}"


def value(measurement: Measurement) -> str:
    """A median with its unit and, where there are several samples, the quartiles around it."""
    median = number(measurement.median, measurement.unit)
    if measurement.count == 1 or measurement.least == measurement.most:
        return median
    low, high = (number(quartile, measurement.unit) for quartile in measurement.quartiles)
    return f"{median} ({low if measurement.unit == 'B' else low.partition(' ')[0]} to {high})"


def number(found: float, unit: str) -> str:
    """A number with its unit: three digits, or all of a whole number."""
    if unit == "B":
        return amount(found)
    digits = f"{found:.0f}" if float(found).is_integer() or abs(found) >= 1000 else f"{found:.3g}"
    return f"{found:.4g} x" if unit == "x" else f"{digits} {unit}"


def _cell(cell: Measurement | str | None) -> str:
    return value(cell) if isinstance(cell, Measurement) else cell or "-"


def bars(promises: Sequence[Bar]) -> Iterator[tuple[str, str, str, str]]:
    """For each promise its words, its bound, what was measured, and whether it is kept."""
    for bar in promises:
        bound = f"{'at most' if bar.at_most else 'at least'} {number(bar.bound, bar.unit)}"
        measured = "not measured" if bar.measured is None else number(bar.measured, bar.unit)
        said = {True: "met", False: "missed", None: ""}[bar.met]
        yield bar.what, bound, measured, ": ".join(filter(None, (said, bar.why)))


def _grid(part: Table) -> str:
    rows = [part.columns, *((row.name, *map(_cell, row.cells)) for row in part.rows)]
    return _rows(rows, "---" + "|---:" * (len(part.columns) - 1))


def _rows(rows: Sequence[Sequence[str]], rule: str) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
