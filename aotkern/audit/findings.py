"""What an audit says: findings, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable


class Verdict(str, Enum):
    """The answer of an audit, and the exit code of the command that ran it."""

    CLEAN = "clean"
    FINDINGS = "findings"
    UNKNOWN = "could not tell"

    def __str__(self) -> str:
        return self.value

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not tell."""
        return {"clean": 0, "findings": 1, "could not tell": 2}[self.value]

    @staticmethod
    def worst(verdicts: Sequence[Verdict]) -> Verdict:
        """The verdict over several: what could not be told outweighs what was found, and nothing at all is unknown."""
        return max(verdicts, key=lambda verdict: verdict.exit_code, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """One outcome of an audit that somebody should look at.

    Attributes:
        audit: Which audit says so: `identity`, `reproducible`, ...
        subject: What it is about, usually the text of a variant key.
        state: The kind of outcome, one word or two, the same for the same kind.
        message: One sentence for people.
        facts: The same in parts, for machines: plain JSON values.
    """

    audit: str
    subject: str
    state: str
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Report(Protocol):
    """What every audit's report can say about itself, whatever else it holds."""

    @property
    def verdict(self) -> Verdict:
        """The audit's answer."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What somebody should look at."""

    @property
    def summary(self) -> str:
        """One line: what was shown, or why nothing could be told."""


@runtime_checkable
class Doubtful(Protocol):
    """A report that names single things about which nothing is told."""

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """They, each with the reason; their state is `could not tell`."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """What was left out because a part was asked for."""
