r"""Texts that came from elsewhere, made fit to be shown: what would steer a terminal or a log is written out instead.

A name, an annotation or an error of another program may hold anything: sequences that clear the screen, a line feed
with a made-up line behind it, marks that turn the reading order round. Every such character is shown as `\uXXXX`, its
spelling in JSON, so that a JSON document stays the same document.
"""

from __future__ import annotations

import re

_STEERING = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters of ASCII and of Latin-1, but for tab and line feed
    "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction, joining, width zero
    "\u2028\u2029"  # line and paragraph separator
    "\ud800-\udfff"  # halves of pairs: no encoding takes them
)
_IN_A_TEXT = re.compile(f"[{_STEERING}]")
_IN_A_LINE = re.compile(f"[{_STEERING}\t\n]")
_TAGS = re.compile("[\U000e0000-\U000e0fff]")  # invisible, and read by machines


def visible(text: str) -> str:
    """A text of one line: a name, a value, a finding. Line feeds and tabs are written out, too."""
    return _TAGS.sub(_write_pair, _IN_A_LINE.sub(_write, text))


def visible_text(text: str) -> str:
    """A text of several lines, whose own line feeds and tabs stay."""
    return _TAGS.sub(_write_pair, _IN_A_TEXT.sub(_write, text))


def is_plain(text: str) -> bool:
    """Whether a text can be shown as it is, in one line."""
    return _IN_A_LINE.search(text) is None and _TAGS.search(text) is None


def _write(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _write_pair(match: re.Match[str]) -> str:
    code = ord(match[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
