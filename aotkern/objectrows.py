"""The rows of code objects in a manifest, kept as text until somebody looks at them.

They are most of a manifest, and a loader needs three values of each. Where a manifest is laid out as `to_bytes` lays it
out, with one code object a line, the lines can be cut out before the rest is read. A raw line feed cannot stand inside
a JSON text, so no value of a well-formed document is cut in two; that the lines were those of the code objects is for
the reader of the rest to see, who finds an empty list under "objects" then.

Nothing is taken on trust: what stands in a row is decoded by the same strict reader when it is first looked at, and
`Manifest.check` looks at every row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from aotkern.canonical import loads
from aotkern.digest import Digest

_START = b'\n"objects":[\n'
_NEXT = b'"variants":['
_FACTS = b'{"code":{'
_AFTER_FACTS = b',"digest":"sha256:'
_REST = re.compile(rb',"digest":"sha256:([0-9a-f]{64})","size":(0|[1-9][0-9]{0,13})\}')
"""What ends a row; a size of 14 digits fits into the 48 bits that a size may have."""

# Both are anchored: of a text that is one JSON object, they find fields of the object itself, never nested ones.
_FLAGS = re.compile(rb'\{"abi_version":[0-9]+,"arguments":\[[^{}]*\],"e_flags":([0-9]{1,10}),"')
_AFTER_SECTIONS = b'},"symbol":"'
_SYMBOL = re.compile(rb'\},"symbol":"([\w.$]+)","target":"[\w:.+-]+"\}')


class StoredFacts(Mapping[str, Any]):
    """The facts of a code object, decoded when they are first looked at.

    Looking raises `IntegrityError` where the text is not what the strict reader takes.

    Args:
        data: The bytes of the manifest.
        start: Where the text begins in them, with a brace. If the manifest is well-formed, it is one JSON object.
        end: Where it ends.
        where: Names the manifest in errors.
        number: Of its row.
    """

    def __init__(self, data: bytes, start: int, end: int, where: str, number: int) -> None:
        self._data, self._start, self._end, self._where, self._number = data, start, end, where, number

    @cached_property
    def decoded(self) -> dict[str, Any]:
        """All of them, as plain values."""
        text = self._data[self._start : self._end]
        value: dict[str, Any] = loads(text, self._place)  # what begins with a brace is an object, or an error
        return value

    @property
    def _place(self) -> str:
        return f"{self._where}.objects[{self._number}].code"

    def loading(self) -> tuple[object, object]:
        """The ELF flags and the symbol, which is what loading takes: decodes nothing where the layout is the usual."""
        data, start, end = self._data, self._start, self._end
        flags = _FLAGS.match(data, start, end)
        symbol = _SYMBOL.fullmatch(data, max(data.rfind(_AFTER_SECTIONS, start, end), start), end)
        if flags and symbol:
            return int(flags[1]), symbol[1].decode("ascii")
        return self.get("e_flags"), self.get("symbol")

    def __getitem__(self, name: str) -> Any:
        return self.decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.decoded)

    def __len__(self) -> int:
        return len(self.decoded)

    def __repr__(self) -> str:
        return f"<facts of {self._place}>"


Row = tuple[Digest, int, StoredFacts]
"""A code object as its row states it: digest and size of its bytes, and its facts."""


def cut(data: bytes, where: str) -> tuple[bytes, tuple[Row, ...]]:
    """Take the rows of code objects out of the bytes of a manifest.

    Args:
        data: The bytes.
        where: Names the manifest in errors of the rows.

    Returns:
        The bytes with an empty list in place of the rows, and the rows; `data` as it is and no rows, when it is not
        laid out like a manifest that has some.
    """
    at = start = data.find(_START) + len(_START)
    if start < len(_START):
        return data, ()
    rows: list[Row] = []
    last = False
    while not last:
        line_end = data.find(b"\n", at)
        if line_end < 0:
            return data, ()
        last = data.endswith(b"],", at, line_end)
        stop = line_end - 2 if last else line_end - 1
        middle = data.rfind(_AFTER_FACTS, at, stop)
        found = _REST.fullmatch(data, middle, stop) if middle >= 0 else None
        if found is None or not data.startswith(_FACTS, at) or data[line_end - 1 : line_end] != b",":
            return data, ()
        facts = StoredFacts(data, at + len(_FACTS) - 1, middle, where, len(rows))
        rows.append((Digest(found[1].decode("ascii")), int(found[2]), facts))
        at = line_end + 1
    if not data.startswith(_NEXT, at):
        return data, ()
    return data[:start] + data[stop:], tuple(rows)
