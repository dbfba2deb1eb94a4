"""The HTML page, read with a parser: structure, self-containedness, escaping."""

from __future__ import annotations

import base64
import hashlib
import sys
from html.parser import HTMLParser

import pytest
import reports_made as made

from aotkern.audit.findings import Verdict
from aotkern.errors import MissingToolError
from aotkern.report import html
from aotkern.report.page import Bar, Cell, Grid, Page, Section, Timeline, Tone

VOID = {"meta", "input", "br", "col", "link"}


class Reader(HTMLParser):
    """Elements with their attributes and texts, and whether they nest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.misnested: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open[-1] != tag:
            self.misnested.append(tag)
        else:
            self.open.pop()

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.misnested
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def full() -> Reader:
    return read(html.render(made.full()))


def test_the_verdict_is_the_title_and_the_first_heading(full):
    assert ("title", "could not tell: audits/policy.toml - aotkern") in full.texts
    headings = [text for tag, text in full.texts if tag in ("h1", "h2")]
    assert headings[0] == "Could not tell"
    assert [h.strip() for h in headings[1:]] == [
        "Steps",
        "Kernels by target",
        "Variants",
        "verify",
        "identity",
        "resources",
        "reproducible",
        "identity",
    ]


def test_every_link_and_label_leads_somewhere(full):
    ids = [attributes["id"] for _, attributes in full.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for _, attributes in full.elements:
        for name in ("href", "aria-labelledby"):
            if name in attributes:
                assert attributes[name].removeprefix("#") in ids


def test_every_variant_is_a_row(full):
    rows = [attributes for tag, attributes in full.elements if tag == "tr" and "data-tone" in attributes]
    assert [row["data-tone"] for row in rows].count("bad") == 4
    assert len(rows) == 9


def test_scrolling_regions_are_reached_by_the_keyboard_and_named(full):
    regions = [attributes for _, attributes in full.elements if "scroll" in (attributes.get("class") or "").split()]
    assert regions
    assert all(r["tabindex"] == "0" and r["role"] == "region" for r in regions)
    assert all(r.get("aria-label") or r.get("aria-labelledby") for r in regions)


@pytest.mark.parametrize("report", [made.full(), made.hostile(), made.large(30)], ids=["full", "hostile", "large"])
def test_nothing_comes_from_outside(report):
    reader = read(html.render(report))
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "audio", "video", "source")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for tag, text in reader.texts:
        if tag in ("style", "script"):
            assert "url(" not in text
            assert "@import" not in text
            assert "//" not in text.replace("\n  //", "").replace("// ", "")
            assert "fetch(" not in text


def test_the_policy_of_the_page_allows_its_own_style_and_script_alone():
    text = html.render(made.hostile())
    reader = read(text)
    policy = next(a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        assert text.count(f"<{tag}>") == 1
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"


def test_hostile_names_are_shown_and_are_no_markup():
    text = html.render(made.hostile())
    assert "<script>alert" not in text
    reader = read(text)
    shown = [data for tag, data in reader.texts if tag not in ("style", "script") and "alert(1)" in data]
    assert len(shown) > 10
    assert [tag for tag, _ in reader.elements].count("script") == 1
    assert len([tag for tag, _ in reader.elements if tag == "h1"]) == 1


def test_a_page_of_two_thousand_variants_stays_small():
    text = html.render(made.large())
    assert len(text.encode()) < 2_500_000
    assert text.count("data-tone=") == 2000


def test_timelines_and_coverage_maps_are_drawn_from_their_values():
    bars = (Bar("rank 0", 0.0, 1.5, "warm-up", "scale"), Bar("rank 1", 1.5, 0.5, "serving", "mix"))
    grid = Grid("Coverage", "call", ("decode",), ("a", "b"), {("decode", "a"): Cell("12 calls", Tone.GOOD)})
    section = Section("s", "jit", "run", Verdict.CLEAN, 1.0, "m", (), (Timeline("Compiles", bars), grid))
    empty = Grid("", "", (), (), {})
    reader = read(html.render_page(Page("p", Verdict.CLEAN, (section,), (), empty)))
    drawn = [(a["x"], a["width"], a["class"]) for tag, a in reader.elements if tag == "rect" and "x" in a]
    assert drawn == [("0.000", "75.000", "phase-0"), ("75.000", "25.000", "phase-1")]
    texts = [text.strip() for _, text in reader.texts]
    assert {"warm-up", "serving", "rank 0", "rank 1", "12 calls", "2.000 seconds", "nothing"} <= set(texts)
    assert "Variants" not in texts


def test_without_the_template_engine_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingToolError, match="pip install 'aotkern"):
        html.render(made.full())
