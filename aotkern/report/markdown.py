"""Markdown for a pull request or a job summary: the verdict first, the details folded, the whole within one comment.

Names and messages come from files that anybody may have written: they are shown in code spans or with their marks
escaped, so that none becomes a link, an image, a heading or a mention of a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from aotkern.audit.outcome import GateReport
from aotkern.report import contributions
from aotkern.report.page import Difference, Page, Section, Tone
from aotkern.report.plain import counted

LIMIT = 65_536
"""Most characters of a comment on GitHub."""

_SHOWN = 50
"""Findings and differences of one step before the rest is counted instead of shown."""

_LINES = 40
"""Lines of one instruction diff, likewise."""

_SIGNS = {Tone.GOOD: "✅", Tone.NOTICE: "⚠️", Tone.BAD: "❌", Tone.UNKNOWN: "❔"}
_MARKS = re.compile(r"([\\`*_\[\]#!|~$]|:(?=//)|(?<=www)\.)")
"""What Markdown, or GitHub's extensions of it, would read as more than a letter in running text."""


def render(report: GateReport) -> str:
    """The report of a gate, or of a single audit; at most `LIMIT` characters."""
    page = contributions.page(report)
    head = "\n".join(_head(page))
    parts = [head]
    room = LIMIT - len(head) - 200
    left_out = 0
    for part in _details(page):
        if len(part) + 2 > room:
            left_out += 1
            continue
        parts.append(part)
        room -= len(part) + 2
    if left_out:
        parts.append(f"_{left_out} more parts do not fit in a comment; the JSON and HTML reports hold everything._")
    return "\n\n".join(parts) + "\n"


def _head(page: Page) -> Iterator[str]:
    yield f"## {_SIGNS[page.tone]} aotkern: {page.verdict}"
    yield ""
    yield f"{code(page.title)}, {counted(len(page.sections), 'step')}, {counted(len(page.variants), 'variant')}"
    yield ""
    yield "| | step | on | what was shown |"
    yield "|---|---|---|---|"
    for section in page.sections[:_SHOWN]:
        message = _short(section.message, 300)
        title, subject = prose(_short(section.title, 60)), _cell(code(_short(section.subject, 120)))
        row = (_SIGNS[section.tone], title, subject, prose(message))
        yield f"| {' | '.join(row)} |"
    if len(page.sections) > _SHOWN:
        yield f"| | {len(page.sections) - _SHOWN} more | | |"


def _details(page: Page) -> Iterator[str]:
    """Folded parts, the most important first: findings, differences, then the matrix."""
    for section in page.sections:
        if section.findings:
            yield _folded(f"{section.title}: {counted(len(section.findings), 'finding')}", _findings(section))
    for section in page.sections:
        differences = [block for block in section.blocks if isinstance(block, Difference)]
        for block in differences[:_SHOWN]:
            yield _folded(f"{section.title}: {block.title}", _difference(block))
        if len(differences) > _SHOWN:
            yield f"{len(differences) - _SHOWN} more kinds of differences in {code(section.subject)}"
    if page.variants:
        yield _folded("Kernels by target", _matrix(page))


def _findings(section: Section) -> Iterator[str]:
    for finding in section.findings[:_SHOWN]:
        yield f"- **{prose(finding.state)}** {code(_short(finding.subject, 400))}"
        yield f"  {prose(_short(finding.message, 400))}"
    if len(section.findings) > _SHOWN:
        yield f"- and {len(section.findings) - _SHOWN} more"


def _difference(block: Difference) -> Iterator[str]:
    for key in block.keys[:_SHOWN]:
        yield f"- {code(_short(key, 400))}"
    if len(block.keys) > _SHOWN:
        yield f"- and {len(block.keys) - _SHOWN} more"
    yield ""
    if block.sections:
        yield f"Sections that differ: {', '.join(map(code, block.sections))}"
        yield ""
    for note in block.notes:
        yield prose(_short(note, 400))
        yield ""
    if block.deltas:
        yield from _table(
            ("fact", "baseline", "now"),
            ((prose(f"{d.group}: {d.name}"), _cell(code(d.before)), _cell(code(d.after))) for d in block.deltas),
        )
        yield ""
    if block.lines:
        yield from _diff(block)


def _diff(block: Difference) -> Iterator[str]:
    body: list[str] = []
    for line in block.lines[:_LINES]:
        if line.left_out:
            body.append("  ... equal instructions")
        elif line.changed:
            body += [f"{sign} {_flat(text)}" for sign, text in (("-", line.before), ("+", line.after)) if text]
        else:
            body.append(f"  {_flat(line.after)}")
    if len(block.lines) > _LINES:
        body.append(f"  ... {len(block.lines) - _LINES} more lines")
    fence = _fence("\n".join(body), 3)
    yield from (f"{fence}diff", *body, fence)


def _matrix(page: Page) -> Iterator[str]:
    grid = page.matrix
    rows = (
        (_cell(code(row)), *(_matrix_cell(page, row, column) for column in grid.columns)) for row in grid.rows[:_SHOWN]
    )
    yield from _table((grid.corner, *(_cell(code(name)) for name in grid.columns)), rows)


def _matrix_cell(page: Page, row: str, column: str) -> str:
    cell = page.matrix.cells.get((row, column))
    return f"{_SIGNS[cell.tone]} {cell.text}" if cell else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _folded(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details><summary>{_flat(_short(title, 300)).translate(_HTML)}</summary>\n\n{body}\n\n</details>"


def code(text: str) -> str:
    """A text as a code span, whatever marks are in it."""
    flat = _flat(text) or "-"
    fence = _fence(flat, 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def prose(text: str) -> str:
    """A text whose marks are escaped: it reads as it is, and mentions nobody."""
    return _MARKS.sub(r"\\\1", _flat(text)).translate(_HTML)


# The empty comment parts a sign from the name after it, so that nobody is called.
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->"})


def _cell(text: str) -> str:
    # In a table, GitHub's Markdown reads this escape even inside a code span.
    return text.replace("|", "\\|")


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _flat(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
