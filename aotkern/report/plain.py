"""What every presentation is made of: aligned columns, amounts, bounded lists, the head of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotkern.audit.findings import Verdict
from aotkern.escape import visible

JSON = dict[str, Any]


def document(kind: str, verdict: Verdict, **content: Any) -> JSON:
    """A document of this kind: `schema`, `verdict`, then its content."""
    return {"schema": f"aotkern.{kind}/1", "verdict": str(verdict), **content}


_SHOWN = 40
"""Rows of one list before the rest is counted instead of shown; machine output is always complete."""


def table(rows: Sequence[Sequence[object]], right: str = "") -> str:
    """Columns aligned by their widest cell; `right` has an `r` at the position of each right-aligned column."""
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    lines = (
        "  ".join(
            cell.rjust(width) if right[place : place + 1] == "r" else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def amount(size: float) -> str:
    """A number of bytes with three digits."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1000
    return f"{size:.3g} GB"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """`1 variant`, `2 variants`; thousands are set apart."""
    return f"{number:,} {noun}" + ("" if number == 1 else plural)


def limited(lines: Sequence[str], noun: str) -> str:
    """Lines up to a bound, and how many more there are."""
    rest = len(lines) - _SHOWN
    return "\n".join([*lines[:_SHOWN], *([f"... and {rest} more {noun}; --json lists all"] if rest > 0 else [])])
