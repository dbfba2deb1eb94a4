"""One output against what a case expects of it: right, wrong, or a comparison that shows nothing.

What shows nothing: no element, a reference without a finite number, a tolerance that is not finite, an expectation of
another shape or type than the output, a reference that is not finite where the output is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotkern.audit.cases import Array, Exact, Expected, Ignored, Near, Sparse, Typed
from aotkern.audit.execution import PAGE, page_bytes, pages_of


@dataclass(frozen=True, slots=True)
class Judged:
    """What came out of one comparison.

    Attributes:
        wrong: What is wrong, or nothing.
        doubt: Why the comparison shows nothing, or nothing.
        compared: Elements that were compared.
        worst: Largest absolute error, and relative L2 error; 0 and 0 for exact outputs.
    """

    wrong: str = ""
    doubt: str = ""
    compared: int = 0
    worst: tuple[float, float] = (0.0, 0.0)


def judge(found: Array | Typed, expected: Expected, pages: Collection[int] = ()) -> Judged:
    """Compare one output.

    Args:
        found: What stands in the array.
        expected: What must stand there.
        pages: Of a sparse output: pages in which something was stored.
    """
    raw = found.data if isinstance(found, Typed) else found
    if isinstance(expected, Ignored):
        return Judged() if expected.reason.strip() else Judged(doubt="it is ignored without a reason")
    if isinstance(expected, Exact) and isinstance(expected.data, Sparse):
        return _sparse(raw, expected.data, pages)
    if misfit := _misfit(raw, expected):
        return Judged(doubt=misfit)
    if isinstance(expected, Exact):
        return Judged(_unequal(raw, np.asarray(expected.data)), compared=raw.size)
    try:
        return _near(raw, decoded(found), expected)
    except ValueError as error:
        return Judged(doubt=str(error))


def _misfit(raw: Array, expected: Exact | Near) -> str:
    wanted = expected.data
    if wanted.shape != raw.shape:
        return f"the expectation has the shape {list(wanted.shape)}, the array {list(raw.shape)}"
    if isinstance(expected, Exact) and wanted.dtype != raw.dtype:
        return f"the expectation has elements of {wanted.dtype}, the array of {raw.dtype}"
    return "" if raw.size else "it has no element"


def _sparse(raw: Array, wanted: Sparse, pages: Collection[int]) -> Judged:
    if (wanted.shape, wanted.dtype) != (raw.shape, raw.dtype):
        return Judged(doubt=f"the expectation is {wanted.dtype} {list(wanted.shape)}, the array has another form")
    flat = raw.reshape(-1).view(np.uint8)
    looked = sorted(pages_of(wanted).union(pages))
    if not looked:
        return Judged(doubt="no page of it is compared")
    for page in looked:
        here = flat[page * PAGE : (page + 1) * PAGE]
        differ = np.flatnonzero(here != page_bytes(wanted, page))
        if differ.size:
            at = page * PAGE + int(differ[0])
            return Judged(f"{differ.size} bytes of the page at byte {page * PAGE:,} differ, first at byte {at:,}")
    return Judged(compared=len(looked) * PAGE // raw.itemsize)


def _near(raw: Array, numbers: Array, expected: Near) -> Judged:
    wanted = np.asarray(expected.data)
    asked = _asked(expected)
    finite = asked & np.isfinite(wanted)
    if doubt := _shows_nothing(expected, asked, finite):
        return Judged(doubt=doubt)
    kept = np.zeros(raw.shape, np.bool_)
    if expected.elsewhere is not None:
        kept = asked & np.isnan(wanted)
        untouched = np.where(kept, expected.elsewhere, raw)
        if wrong := _unequal(raw, untouched):
            return Judged(f"where nothing is computed, {wrong}", compared=int(asked.sum()))
    wrong, doubt = _nonfinite(numbers, wanted, asked & ~finite & ~kept, meant=expected.nonfinite)
    bound = np.broadcast_to(expected.atol, wanted.shape) + expected.rtol * np.abs(wanted)
    worst, distant = _distant(numbers[finite], wanted[finite], bound[finite], expected.l2)
    return Judged(wrong or distant, doubt, int(asked.sum()), worst)


def _asked(expected: Near) -> Array:
    if expected.undefined is None:
        return np.ones(expected.data.shape, np.bool_)
    return ~np.broadcast_to(expected.undefined, expected.data.shape)


def _shows_nothing(expected: Near, asked: Array, finite: Array) -> str:
    if not asked.any():
        return "every element may hold anything"
    if expected.elsewhere is None and not finite.any() and not expected.nonfinite:
        return "the reference holds no finite number"
    with np.errstate(all="ignore"):
        bound = np.broadcast_to(expected.atol, finite.shape) + expected.rtol * np.abs(expected.data)
    loose = finite & ~np.isfinite(bound)
    return f"the tolerance is not finite at {int(loose.sum())} of {finite.size} elements" if loose.any() else ""


def _nonfinite(numbers: Array, wanted: Array, special: Array, *, meant: bool) -> tuple[str, str]:
    """What is wrong, and what shows nothing, where the reference is NaN or infinite."""
    same = (wanted == numbers) | (np.isnan(wanted) & np.isnan(numbers))
    other = special & ~same
    if not other.any():
        return "", ""
    at = tuple(int(number) for number in np.argwhere(other)[0])
    count, place = int(other.sum()), list(at)
    told = f"first at {place}: expected {wanted[at]}, found {numbers[at]:.6g}"
    if meant or (other & ~np.isfinite(numbers)).any():
        return f"{count} elements differ where the reference is not finite, {told}", ""
    return "", (
        f"the reference is not finite at {count} elements where the output is, {told}"
        " (if the reference means it, say nonfinite=True)"
    )


def _unequal(found: Array, wanted: Array) -> str:
    same = _flat(found) == _flat(wanted)
    if same.all():
        return ""
    at = int(np.argmin(same)) // found.itemsize
    index = np.unravel_index(at, found.shape)
    place = [int(number) for number in index]
    count = int((~same).sum())
    return f"{count} bytes differ, first at {place}: expected {wanted[index]!r}, found {found[index]!r}"


def _flat(data: Array) -> Array:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def _distant(found: Array, wanted: Array, bound: Array, most: float) -> tuple[tuple[float, float], str]:
    if not found.size:
        return (0.0, 0.0), ""
    gap = np.abs(found - wanted)
    norm = float(np.linalg.norm(wanted))
    relative = float(np.linalg.norm(gap)) / norm if norm else float(np.linalg.norm(gap))
    worst = (float(gap.max()), relative)
    wrong = ~(gap <= bound)  # NaN is wrong
    if wrong.any():
        return worst, f"{int(wrong.sum())} of {gap.size} elements off, by up to {worst[0]:.3g}"
    if not relative <= most:
        return worst, f"relative L2 error {relative:.3g} > {most:g}"
    return worst, ""


def decoded(value: Array | Typed) -> Array:
    """The numbers of an array, as float64.

    Raises:
        ValueError: Its elements have no decoding here.
    """
    if not isinstance(value, Typed):
        return value.astype(np.float64)
    if value.element == "bf16":
        widened: Any = (value.data.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(widened.astype(np.float64))
    raise ValueError(f"no decoding for {value.element}: compare it as Exact")
