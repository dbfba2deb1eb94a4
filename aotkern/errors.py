"""The error family: one class for each thing that a caller can do about it.

Every error carries its facts as attributes; the message is made from them. No other exception type crosses the border
of a public function for a reason that lies in the input, the machine or the file system.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

_Self = TypeVar("_Self", bound="ProblemsError")


class AotkernError(Exception):
    """Base of everything that aotkern raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where it stands, what was expected there and what was found.

    Attributes:
        where: File and, after a colon, the field or byte range inside it.
        expected: What would have been right, in words.
        found: What is there, in words or as a short `repr`.
    """

    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"


class ProblemsError(AotkernError):
    """An error made of one or more problems, all of them reported at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ProblemsError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)

    @classmethod
    def one(cls: type[_Self], where: str, expected: str, found: str) -> _Self:
        """The error for a single problem."""
        return cls((Problem(where, expected, found),))

    def within(self, where: str) -> tuple[Problem, ...]:
        """The problems of a part, told as problems of the whole that it was found in."""
        return tuple(Problem(f"{where}: {p.where}", p.expected, p.found) for p in self.problems)


class InputError(ProblemsError):
    """What the caller wrote is wrong (a declaration, a key, an option, a policy): correct it."""


class IntegrityError(ProblemsError):
    """What a file holds is not what it says: do not use it; fetch or build it again."""


class BuildError(AotkernError):
    """A variant could not be compiled: `key` names it, `reason` says why."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key}: {reason}")

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str]]:
        return type(self), (self.key, self.reason)


class MissingToolError(AotkernError):
    """Something that this operation needs is not installed: `tool` names it, `advice` says how to get it."""

    def __init__(self, tool: str, needed_for: str, advice: str) -> None:
        self.tool, self.needed_for, self.advice = tool, needed_for, advice
        super().__init__(f"{tool} is needed {needed_for}: {advice}")

    def __reduce__(self) -> tuple[type[MissingToolError], tuple[str, str, str]]:
        return type(self), (self.tool, self.needed_for, self.advice)
