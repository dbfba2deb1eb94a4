"""Canonical JSON: one byte sequence for one value, and a reader that cannot be surprised.

The writer sorts keys, uses no spaces and refuses NaN; the reader refuses duplicate keys, floats, huge integers, deep
nesting, text that cannot be encoded and oversized input, each with one clear error, and executes nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from aotkern.errors import IntegrityError

MAX_BYTES = 256 << 20
"""Most bytes of a JSON document that `loads` accepts."""

_MAX_DIGITS = 24
_LONG_NUMBER = b"0" * (_MAX_DIGITS + 1)
_ANY_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)


def dumps(value: object) -> str:
    """The canonical text of plain values (objects, lists, texts, integers, booleans, None)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(data: bytes, where: str, *, decimals: bool = False) -> Any:
    """Read a JSON document of plain values.

    Args:
        data: The document.
        where: Names it in the error.
        decimals: Take numbers with a decimal point, too, if they are finite: measurements have them, manifests do not.

    Raises:
        IntegrityError: Not such a document.
    """
    if len(data) > MAX_BYTES:
        raise IntegrityError.one(where, f"JSON of at most {MAX_BYTES} bytes", f"{len(data)} bytes")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            # A Python call for each integer would cost more than all the rest. Long runs of digits are looked for at
            # once instead; one inside a text, such as a digest, merely makes the reading slower.
            parse_int=_integer if _LONG_NUMBER in data.translate(_ANY_DIGIT) else None,
            parse_float=_finite if decimals else _no_float,
            parse_constant=_no_float,
        )
        if b"\\u" in data:
            dumps(value).encode()
        return value
    except IntegrityError as error:
        raise IntegrityError.one(where, error.problems[0].expected, error.problems[0].found) from None
    except UnicodeEncodeError as error:
        # An escape can name half of a surrogate pair, which no file, terminal or hash could take later.
        raise IntegrityError.one(where, "text that UTF-8 can hold", f"a lone surrogate ({error.reason})") from None
    except (ValueError, RecursionError) as error:
        raise IntegrityError.one(where, "a JSON document", f"{type(error).__name__}: {error}"[:200]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise IntegrityError.one("", "each key once", f"{twice[:80]!r} more than once")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise IntegrityError.one("", f"integers of at most {_MAX_DIGITS} digits", f"{len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise IntegrityError.one("", "finite numbers only", text[:40])
    return value


def _no_float(text: str) -> NoReturn:
    raise IntegrityError.one("", "integers only", text[:40])
