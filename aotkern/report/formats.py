"""The reports that can be written to a file, by the ending of its name. A format is one line here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from aotkern.audit.outcome import GateReport
from aotkern.errors import InputError
from aotkern.escape import visible_text
from aotkern.report import coverage, html, jit_machine, jit_page, junit, machine, markdown, replay, sarif, text

Render = Callable[[GateReport], str]

SHOWN_BY = (coverage, jit_machine, jit_page, replay)
"""Modules that are here for what they register: the JSON form and the page's blocks of an audit."""


def _json(report: GateReport) -> str:
    return visible_text(json.dumps(machine.gate(report), indent=2, ensure_ascii=False)) + "\n"


def _text(report: GateReport) -> str:
    return visible_text(text.gate(report)) + "\n"


FORMATS: Mapping[str, Render] = {
    ".html": html.render,
    ".md": markdown.render,
    ".xml": junit.render,
    ".sarif": sarif.render,
    ".json": _json,
    ".txt": _text,
}
"""Renderers by file suffix."""


def of(path: Path) -> Render:
    """The renderer for a file of this name.

    Raises:
        InputError: No format has this ending.
        MissingToolError: It needs a library that is not installed.
    """
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise InputError.one(f"report {path}", f"a file name that ends in {known}", repr(path.suffix) or "none")
    if FORMATS[path.suffix] is html.render:
        html.require()
    return FORMATS[path.suffix]
