"""Markdown: verdict first, the size of a comment, and names that are only names."""

from __future__ import annotations

import re

import pytest
import reports_made as made
from markdown_it import MarkdownIt

from aotkern.report import markdown
from aotkern.report.page import Tone


def test_the_verdict_stands_first_and_every_step_in_the_table():
    text = markdown.render(made.full())
    assert text.startswith("## ❔ aotkern: could not tell\n")
    rows = [line for line in text.splitlines() if line.startswith(("| ✅", "| ❌", "| ❔"))]
    steps = [row.split(" | ")[1] for row in rows[:5]]
    assert steps == ["verify", "identity", "resources", "reproducible", "identity"]
    assert "| ❔ | identity | `out/other.aotk` | absent: expected a bundle second: line |" in text


def test_details_are_folded_and_closed():
    text = markdown.render(made.full())
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") > 3
    assert "- v_mul_f32_e32 v2, 0x40400000, v2\n+ v_mul_f32_e32 v2, 0x40a00000, v2\n+ v_add_f32_e32 v2, 1.0, v2" in text
    assert "| resources: vgprs | `24` | `32` |" in text


def test_a_report_of_any_size_fits_in_a_comment():
    text = markdown.render(made.large(4000))
    assert len(text) <= markdown.LIMIT
    assert text.count("<details>") == text.count("</details>")
    assert "## ❌ aotkern: findings" in text
    assert "more kinds of differences" in text


def tokens(text: str):
    """What a Markdown parser makes of it, inline parts included."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def test_hostile_names_stay_names():
    found = list(tokens(markdown.render(made.hostile())))
    kinds = {token.type for token in found}
    assert not {"link_open", "image", "blockquote_open"} & kinds
    assert [token.tag for token in found if token.type == "heading_open"] == ["h2"]
    markup = "".join(token.content for token in found if token.type in ("html_block", "html_inline"))
    tags = set(re.findall("<[^>]*>", markup))
    assert tags == {"<details>", "</details>", "<summary>", "</summary>", "<!-- -->"}
    shown = [token.content for token in found if token.type in ("text", "html_block", "html_inline")]
    assert not [text for text in shown if re.search("@(?!<!-- -->)", text) and not text.endswith("@")]


def test_addresses_in_running_text_become_no_links():
    assert markdown.prose("see http://a.example and www.b.example") == r"see http\://a.example and www\.b.example"


@pytest.mark.parametrize("text", ["a`b", "``", "`a`", "a\nb", "", "a``b`c"])
def test_a_code_span_is_closed_by_its_own_fence_alone(text):
    span = markdown.code(text)
    fence = re.match("`+", span)[0]
    assert span.endswith(fence)
    inside = span[len(fence) : -len(fence)]
    assert fence not in re.findall("`+", inside)
    assert "\n" not in span
    assert inside.strip()


def test_table_cells_keep_their_columns():
    found = list(tokens(markdown.render(made.hostile())))
    first = found[next(n for n, token in enumerate(found) if token.type == "tbody_open") :]
    row = first[: next(n for n, token in enumerate(first) if token.type == "tr_close")]
    cells = [token.content for token in row if token.type == "inline"]
    assert len(cells) == 4
    assert all("alert" in cell for cell in cells[1:])


def test_every_tone_has_a_sign():
    assert set(markdown._SIGNS) == set(Tone)
