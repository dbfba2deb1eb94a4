"""What a page shows, as values: sections made of blocks, the table of variants, and the matrix over it. No markup.

A page is made from a gate's report by `contributions.page`. The HTML and Markdown reports render it, and neither knows
any audit: an audit that has something of its own to show contributes blocks of the kinds below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Union

from aotkern.audit.findings import Finding, Verdict


class Tone(str, Enum):
    """How a state is to be read; the better ones first.

    Attributes:
        GOOD: Shown to be right.
        NOTICE: Worth a look, and no finding.
        BAD: A finding.
        UNKNOWN: Could not be told.
    """

    GOOD = "good"
    NOTICE = "notice"
    BAD = "bad"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Tone).index(self)

    @staticmethod
    def of(verdict: Verdict) -> Tone:
        """The tone of a verdict."""
        return {Verdict.CLEAN: Tone.GOOD, Verdict.FINDINGS: Tone.BAD, Verdict.UNKNOWN: Tone.UNKNOWN}[verdict]


@dataclass(frozen=True, slots=True)
class State:
    """What one audit says of one variant, in a word or two."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant in the table of all variants.

    Attributes:
        key: The text of its key.
        states: What each audit says of it, the worst first.
        numbers: Its resources by name, where an audit read them.
    """

    key: str
    states: tuple[State, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernel(self) -> str:
        """The kernel's name, which begins the key."""
        return self.key.partition("[")[0]

    @property
    def target(self) -> str:
        """The target, which follows in brackets."""
        return self.key.partition("[")[2].partition("]")[0]

    @property
    def specialisation(self) -> str:
        """The rest of the key: arguments and options."""
        return self.key.partition("]")[2]

    @property
    def tone(self) -> Tone:
        """The worst of its states' tones."""
        return max((state.tone for state in self.states), key=lambda tone: tone.rank, default=Tone.GOOD)


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a grid."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix such as a coverage map: a cell for some pairs of row and column; a pair without one stays empty."""

    kind: ClassVar[str] = "grid"
    title: str
    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts.

    Attributes:
        title: What it is about.
        columns: Headings.
        rows: As many cells as there are columns.
        numeric: Positions of the columns that hold numbers.
    """

    kind: ClassVar[str] = "table"
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a timeline: where it runs, its start and length (in the timeline's unit), its phase."""

    lane: str
    start: float
    length: float
    phase: str
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Stretches over one axis that starts at 0, one line for each lane; the axis counts seconds, or something whole."""

    kind: ClassVar[str] = "timeline"
    title: str
    bars: tuple[Bar, ...]
    unit: str = "seconds"

    @property
    def lanes(self) -> tuple[str, ...]:
        """In the order in which they first occur."""
        return tuple(dict.fromkeys(bar.lane for bar in self.bars))

    @property
    def phases(self) -> tuple[str, ...]:
        """In the order in which they first occur."""
        return tuple(dict.fromkeys(bar.phase for bar in self.bars))

    @property
    def length(self) -> float:
        """Where the last stretch ends."""
        return max((bar.start + bar.length for bar in self.bars), default=0.0)

    def number(self, value: float) -> str:
        """A place on the axis, or a length of it, as text."""
        return f"{value:.3f}" if self.unit == "seconds" else f"{value:,.0f}"


@dataclass(frozen=True, slots=True)
class Delta:
    """One fact that differs: a group (`resources`, `launch`, ...), a name in it, and both values as text."""

    group: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an instruction diff.

    Attributes:
        before: The baseline's instruction, empty where it has none here.
        after: The candidate's, likewise.
    """

    before: str
    after: str

    @property
    def left_out(self) -> bool:
        """Whether equal lines are left out here, instead of a line."""
        return not self.before and not self.after

    @property
    def changed(self) -> bool:
        """Whether the sides differ."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, with all variants that show exactly this one.

    Attributes:
        state: What kind of difference it is.
        keys: The variants.
        sections: ELF sections that differ.
        deltas: Facts that differ.
        notes: Anything else that was found, one line each.
        lines: The instruction diff, or nothing.
    """

    kind: ClassVar[str] = "difference"
    state: State
    keys: tuple[str, ...]
    sections: tuple[str, ...]
    deltas: tuple[Delta, ...]
    notes: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def title(self) -> str:
        """State, the first variant, and how many more."""
        more = f" and {len(self.keys) - 1} more alike" if len(self.keys) > 1 else ""
        return f"{self.state.text}: {self.keys[0]}{more}"


Block = Union[Table, Grid, Timeline, Difference]


@dataclass(frozen=True, slots=True)
class Section:
    """One step of the gate.

    Attributes:
        anchor: Its name in links, unique on the page.
        title: Which audit.
        subject: On what.
        verdict: Its outcome.
        seconds: How long it took.
        message: What was shown, or why nothing could be told.
        findings: What somebody should look at and no block shows already.
        blocks: What else there is to see.
    """

    anchor: str
    title: str
    subject: str
    verdict: Verdict
    seconds: float
    message: str
    findings: tuple[Finding, ...]
    blocks: tuple[Block, ...]

    @property
    def tone(self) -> Tone:
        """The tone of its verdict."""
        return Tone.of(self.verdict)


@dataclass(frozen=True, slots=True)
class Page:
    """Everything on one page.

    Attributes:
        title: What was run: the policy of a gate, or the name of a single audit.
        verdict: Over everything.
        sections: The steps, in their order.
        variants: Every variant that a step looked at, sorted by key.
        matrix: Kernels by target, with the state of their variants.
    """

    title: str
    verdict: Verdict
    sections: tuple[Section, ...]
    variants: tuple[VariantRow, ...]
    matrix: Grid

    @property
    def tone(self) -> Tone:
        """The tone of the verdict."""
        return Tone.of(self.verdict)

    @property
    def seconds(self) -> float:
        """Of all steps together."""
        return sum(section.seconds for section in self.sections)
