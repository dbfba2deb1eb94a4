"""What somebody can do about a miss or a compile, as a value: what to change, where, and to what.

Messages are made from these. Each kind is tried by a test: the change is made as the words say, and the call is served
then, or the compile is gone (`tests/test_advice.py`; a kind without such a trial fails there).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Change(str, Enum):
    """What is to be changed; `Advice` says of what, and to what."""

    DECLARE = "declare"
    BUILD_OPTION = "build option"
    NAME_OPTION = "name option"
    ALIGN = "align"
    STORAGE_BYTES = "storage bytes"
    FIT_ANNOTATION = "fit annotation"
    PASS = "pass"  # noqa: S105 - no password
    CONVERT = "convert"
    UNDENY = "undeny"
    UNSPECIALISE = "unspecialise"
    PAD = "pad"
    ANNOTATE = "annotate"
    RUN_TIME = "run time"
    BUILD = "build"
    MAKE_INSIDE = "make inside"
    SHIP_CHOICE = "ship choice"
    KEEP_FUNCTION = "keep function"
    WARM_UP = "warm up"
    DROP = "drop"

    def __str__(self) -> str:
        return self.value


_WORDS = {
    Change.DECLARE: "declare {name} as {value}, too",
    Change.BUILD_OPTION: 'build a variant with options={{"{name}": {value}}}',
    Change.NAME_OPTION: "name {name} in the call: {value}",
    Change.ALIGN: "pass {name} at a 16-byte boundary",
    Change.STORAGE_BYTES: "say the storage_bytes of {name}, which a plain address does not tell",
    Change.FIT_ANNOTATION: "pass {name} within the range of {value}, which its annotation fixes: nothing serves others",
    Change.PASS: "pass {name} as {value}",
    Change.CONVERT: "convert {name} to {value}",
    Change.UNDENY: "take {value} out of the deny list, or build this variant with other code",
    Change.UNSPECIALISE: 'do_not_specialize=["{name}"]',
    Change.PAD: "pad {name} to a multiple of 16",
    Change.ANNOTATE: "annotate {name} as tl.{value}",
    Change.RUN_TIME: 'make {name} a run-time argument, with do_not_specialize=["{name}"]',
    Change.BUILD: "warm up or build this {name}, too",
    Change.MAKE_INSIDE: "make descriptor {name} inside the kernel (tl.make_tensor_descriptor); no declaration has one",
    Change.SHIP_CHOICE: "ship the chosen configuration",
    Change.KEEP_FUNCTION: "keep one function object, and do not clear its cache",
    Change.WARM_UP: "warm it up before ready, or build it",
    Change.DROP: "remove {name}, or pass the same value always",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that helps by itself.

    Attributes:
        change: What kind of change.
        name: The parameter or compile option; empty where it is about none.
        value: To what, as it is written in a declaration, a call or a kernel; may be empty.
    """

    change: Change
    name: str = ""
    value: str = ""

    def __str__(self) -> str:
        return _WORDS[self.change].format(name=self.name, value=self.value)


def say(advice: tuple[Advice, ...]) -> str:
    """Alternatives in words."""
    return ", or ".join(map(str, advice))
