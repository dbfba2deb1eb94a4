"""The page in headless Chromium: no console messages, no connection, and everything by keyboard."""

from __future__ import annotations

import base64
import re
import time

import browser
import pytest
import reports_made as made

from aotkern.audit.outcome import GateReport, StepResult
from aotkern.report import html

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "-")

SHOWN = "return [...document.querySelectorAll('#all tbody tr:not([hidden])')].length"
FOCUS = "return document.activeElement.id || document.activeElement.dataset.kernel || document.activeElement.tagName"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with browser.browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def show(window, tmp_path):
    def show(report):
        window.open(made.saved(tmp_path, html.render(report)))
        return window

    yield show
    assert window.messages() == []


def test_every_block_is_drawn(show):
    page = show(made.full())
    assert page.run("return document.querySelector('h1').innerText") == "Could not tell"
    assert page.run("return document.querySelectorAll('.difference').length") == 3
    assert page.run(SHOWN) == 9
    assert page.run("return performance.getEntriesByType('resource').length") == 0


def test_hostile_names_run_nothing(show):
    page = show(made.hostile())
    assert page.run("return document.scripts.length") == 1
    assert made.HOSTILE in page.run("return document.querySelector('h2 .path').textContent + document.title")
    assert page.run("return document.images.length + document.querySelectorAll('a[href^=http]').length") == 0


def test_an_injected_script_is_refused_by_the_page_itself(show):
    page = show(made.full())
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.evil=1\">')")
    page.run("const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s)")
    assert page.run("return window.evil ?? null") is None
    refusals = page.messages()
    assert len(refusals) >= 2
    assert all("Content Security Policy" in refusal for refusal in refusals)


def test_words_and_menus_filter_the_variants(show):
    page = show(made.full())
    page.press("/")
    assert page.run(FOCUS) == "words"
    page.press(*"mix block=128")
    assert page.run(SHOWN) == 1
    assert page.run("return document.getElementById('shown').textContent") == "1 of 9 shown"
    page.press("Escape")
    assert page.run(SHOWN) == 9
    page.press("Tab", *"scale")
    assert (page.run(FOCUS), page.run(SHOWN)) == ("kernel", 5)
    page.press("Tab", "ArrowDown")
    assert (page.run(FOCUS), page.run(SHOWN)) == ("target", 2)


def test_a_cell_of_the_matrix_shows_its_variants(show):
    page = show(made.full())
    page.run("document.querySelector('button[data-kernel=wide]').focus()")
    page.press("Enter")
    page.run("return new Promise((done) => setTimeout(done, 50))")
    assert page.run(SHOWN) == 1
    assert page.run("return document.getElementById('target').value") == "hip:gfx950"


def test_columns_are_sorted_by_their_headings(show):
    page = show(made.full())
    heading = "[...document.querySelectorAll('#all thead button')].find((b) => b.textContent === 'kernel')"
    first = "return document.querySelector('#all tbody tr').cells[1].textContent"
    page.run(f"{heading}.focus()")
    page.press("Enter")
    assert page.run(first) == "gone"
    page.press("Enter")
    assert page.run(first) == "wide"
    assert page.run(f"return {heading}.closest('th').getAttribute('aria-sort')") == "descending"


def test_everything_is_reached_by_the_tab_key(show):
    page = show(made.full())
    wanted = set(
        page.run("return [...document.querySelectorAll('button:not([hidden]), select, input')].map((e) => e.outerHTML)")
    )
    wanted |= set(page.run("return [...document.querySelectorAll('body > a, main a')].map((e) => e.outerHTML)"))
    assert len(wanted) > 20
    for _ in range(120):
        page.press("Tab")
        wanted.discard(page.run("return document.activeElement.outerHTML"))
    assert not wanted


def test_the_theme_follows_the_system_until_one_is_chosen(show):
    page = show(made.full())
    ground = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        seen[scheme] = page.run(ground)
    assert seen["light"] != seen["dark"]
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) == seen["light"]
    assert page.run("return document.getElementById('theme').textContent") == "Theme: light"
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) == seen["dark"]
    page.run("localStorage.clear()")


CONTRAST = """
const luminance = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
};
const poor = [];
let seen = 0;
for (const element of document.querySelectorAll("body *")) {
  const written = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!written || element.closest("script, style")) continue;
  seen += 1;
  const pair = [getComputedStyle(element).color, ground(element)].map(luminance).sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < 4.5) poor.push([element.outerHTML.slice(0, 80), ratio]);
}
return [seen > 100, poor];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_against_its_ground(show, scheme):
    page = show(made.full())
    page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.run("for (const item of document.querySelectorAll('details')) item.open = true")
    assert page.run(CONTRAST) == [True, []]


def test_it_prints_with_everything_open(show):
    page = show(made.full())
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("return document.querySelectorAll('details:not([open])').length") == 0
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.querySelectorAll('.difference[open]').length") == 0
    printed = base64.b64decode(page.devtools("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")


def test_keys_stay_readable_on_screen_and_on_paper(show):
    """Keys of hundreds of characters among a dozen columns: a line of their own, and not a letter on each line."""
    page = show(made.large(300))
    for media in ("screen", "print"):
        page.devtools("Emulation.setEmulatedMedia", media=media)
        page.devtools("Emulation.setDeviceMetricsOverride", width=1000, height=700, deviceScaleFactor=1, mobile=False)
        box = page.run("return document.querySelector('#all tbody td.key').getBoundingClientRect().toJSON()")
        assert (box["width"] > 800, box["height"] < 40) == (True, True), (media, box)
    page.devtools("Emulation.setEmulatedMedia", media="")
    page.devtools("Emulation.clearDeviceMetricsOverride")
    printed = base64.b64decode(page.devtools("Page.printToPDF")["data"])
    assert 2 < len(re.findall(rb"/Type /Page\b", printed)) < 60


def test_what_takes_a_thousandth_of_a_timeline_is_still_seen(show):
    page = show(GateReport("p", (StepResult.of("replay", "b", made.replayed(), 0.1),)))
    bars = page.run(
        "return [...document.querySelectorAll('.lanes rect')].map((e) => [e.getBoundingClientRect().width,"
        " getComputedStyle(e).strokeWidth, getComputedStyle(e).stroke])"
    )
    assert len(bars) == 5
    assert all(width > 0 and stroke == "1px" and colour.startswith("rgb") for width, stroke, colour in bars)
    assert page.run("return document.querySelector('.axis').innerText.split('\\n').at(-1)") == "1,005 steps"
    assert "0 variants" not in page.run("return document.querySelector('.verdict').innerText")


def test_two_thousand_variants_open_within_two_seconds(window, tmp_path):
    """The best of three, since other processes of this machine are no part of it."""
    path = made.saved(tmp_path, html.render(made.large()))
    best = 60.0
    for _ in range(3):
        started = time.perf_counter()
        window.open(path)
        assert window.run(SHOWN) == 250
        best = min(best, time.perf_counter() - started)
    assert best < 2


def test_no_width_makes_the_page_itself_scroll_sideways(show):
    page = show(made.full())
    for width in (360, 800, 1600):
        page.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert page.run("return document.documentElement.scrollWidth") <= width
    page.devtools("Emulation.clearDeviceMetricsOverride")


def test_two_thousand_variants_are_all_there(show):
    page = show(made.large())
    shown = "return document.getElementById('shown').textContent"
    assert (page.run(SHOWN), page.run(shown)) == (250, "first 250 of 2000 shown")
    page.run("document.getElementById('more').focus()")
    page.press("Enter")
    assert (page.run(SHOWN), page.run(shown)) == (2000, "2000 of 2000 shown")
    page.press("/", *"width=1999)")
    assert (page.run(SHOWN), page.run(shown)) == (1, "1 of 2000 shown")


def test_all_variants_are_printed(show):
    page = show(made.large(300))
    assert page.run(SHOWN) == 250
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run(SHOWN) == 300


def test_without_scripts_the_page_is_whole(window, tmp_path):
    window.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(made.saved(tmp_path, html.render(made.large(300))))
        root = window.devtools("DOM.getDocument")["root"]["nodeId"]
        rows = window.devtools("DOM.querySelectorAll", nodeId=root, selector="#all tbody tr:not([hidden])")["nodeIds"]
        assert len(rows) == 300
        assert window.devtools("DOM.getBoxModel", nodeId=rows[-1])["model"]["height"] > 0
    finally:
        window.devtools("Emulation.setScriptExecutionDisabled", value=False)
