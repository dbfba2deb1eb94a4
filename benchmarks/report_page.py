"""How long the HTML report of a large gate takes: to write, and to open in headless Chromium.

    python benchmarks/report_page.py [--variants 2000] [--runs 5] [--json FILE]

Opening is measured by the page itself: from the start of the navigation to the end of its `load` event, with the whole
table laid out. The report is made by hand; its variants are read by two audits, and every tenth differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "report")]

import browser  # noqa: E402
import reports_made  # noqa: E402

from aotkern.report import html  # noqa: E402

TIMING = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd / 1000"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if reason := browser.missing():
        sys.exit(reason)
    report = reports_made.large(options.variants)
    started = time.perf_counter()
    text = html.render(report)
    written = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder, browser.browser(Path(folder) / "profile") as window:
        path = reports_made.saved(Path(folder), text)
        opened = []
        for _ in range(options.runs):
            window.open(path)
            opened.append(window.run(TIMING))
    result = {
        "variants": options.variants,
        "bytes": len(text.encode()),
        "write_seconds": round(written, 3),
        "open_seconds": [round(seconds, 3) for seconds in opened],
        "open_median": round(statistics.median(opened), 3),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
