"""One self-contained HTML page: style and script are part of it, and its own policy forbids it every connection.

Every text goes through the template engine's escaping, and the page's content security policy names its one style and
its one script by their digests: a variant whose name is hostile is shown, and nothing of it is run.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import import_module

from aotkern.audit.outcome import GateReport
from aotkern.errors import MissingToolError
from aotkern.escape import visible_text
from aotkern.report import contributions
from aotkern.report.page import Page


def render(report: GateReport) -> str:
    """The page of a gate, or of a single audit, as one HTML document.

    Raises:
        MissingToolError: jinja2 is not installed.
    """
    return render_page(contributions.page(report))


def require() -> None:
    """Ask for what a page needs, before the work that it is to show is done.

    Raises:
        MissingToolError: jinja2 is not installed.
    """
    try:
        import_module("jinja2")
    except ImportError:
        raise MissingToolError("jinja2", "for an HTML report", "pip install 'aotkern[report]'") from None


def render_page(page: Page) -> str:
    """As `render`, for a page that was made already."""
    require()
    import jinja2  # noqa: PLC0415 - an optional extra

    loader = jinja2.PackageLoader("aotkern.report", "assets")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (loader.get_source(environment, name)[0] for name in ("page.css", "page.js"))
    environment.globals.update(percent=_percent, number_names=_number_names(page))
    policy = f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; base-uri 'none'"
    return environment.get_template("page.html.j2").render(page=page, style=style, script=script, policy=policy)


def _shown(value: object) -> object:
    """A text that came from elsewhere, with what would steer a reader's terminal written out."""
    return visible_text(value) if type(value) is str else value


def _source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}" if whole else "0"


def _number_names(page: Page) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in page.variants for name in row.numbers))
