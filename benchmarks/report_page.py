"""How long the HTML report of a large gate takes: to write, and to open in headless Chromium.

    python -m benchmarks report-page

Opening is measured by the page itself: from the start of the navigation to the end of its `load` event, with the whole
table laid out. The report is made by hand; its variants are read by two audits, and every tenth differs.
"""

from __future__ import annotations

import sys

from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed, timed
from benchmarks import common
from benchmarks.common import Options

sys.path[:0] = [str(common.ROOT / "tests"), str(common.ROOT / "tests" / "report")]

TIMING = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd / 1000"


def measure(options: Options) -> Run:
    common.needs("jinja2", "pytest")
    import browser
    import reports_made

    from aotkern.report import html

    if reason := browser.missing():
        raise common.NotHereError(f"needs a browser: {reason}")
    observation = observed("report-page", common.command("report-page", options), ("jinja2",))
    variants, rounds = (100, 2) if options.quick else (2000, 9)
    report = reports_made.large(variants)
    path = reports_made.saved(options.folder, html.render(report))
    with browser.browser(options.folder / "profile") as window:

        def opened() -> float:
            window.open(path)
            return float(window.run(TIMING))

        times = interleaved({"write": timed(lambda: html.render(report)), "open": opened}, rounds, 1)
    rows = tuple(Row(name, (Measurement.of("s", samples),)) for name, samples in times.items())
    table = Table(f"HTML report of {variants} variants, {path.stat().st_size / 1e6:.1f} MB", ("step", "time"), rows)
    opening = common.median(table, "open", "time")
    return observation.run((table,), (Bar("report of 2,000 variants opens", "s", 2, at_most=True, measured=opening),))
