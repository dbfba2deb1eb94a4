"""Naming some of many variants: shell patterns over kernel names and key texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache


@lru_cache
def _patterns(texts: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    # A key is full of square brackets, which a person means literally.
    return tuple(re.compile(translate(text.replace("[", "[[]"))) for text in texts)


def selected(text: str, only: Sequence[str]) -> bool:
    """Whether a variant is meant: one of the patterns fits its kernel's name or the whole text of its key.

    Args:
        text: The text of a variant key.
        only: Patterns with `*` and `?`; no pattern at all means every variant.
    """
    kernel = text.partition("[")[0]
    return not only or any(pattern.match(kernel) or pattern.match(text) for pattern in _patterns(tuple(only)))
