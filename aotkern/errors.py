"""The error family: one class for each thing that a caller can do about it.

Every error carries its facts as attributes; the message is made from them. No other exception type crosses the border
of a public function for a reason that lies in the input, the machine or the file system.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from aotkern.escape import visible

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
        return visible(f"{self.where}: expected {self.expected}, found {self.found}")


MOST_PROBLEMS = 100
"""Of how many problems an error tells: a hostile file can have millions, and nobody reads the hundredth."""
_AND_MORE = Problem("and more", f"at most {MOST_PROBLEMS} problems", "others, which are not listed")


class ProblemsError(AotkernError):
    """An error made of one or more problems, reported at once: all, or the first `MOST_PROBLEMS`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        rest = iter(problems)
        listed = tuple(islice(rest, MOST_PROBLEMS))
        more = next(rest, None) if len(listed) == MOST_PROBLEMS else None
        self.problems = listed if more is None else (*listed, _AND_MORE)
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


class TrustError(ProblemsError):
    """Nobody who is trusted for it vouches for a file: do not use it; have it signed, or change the trust file."""


class RemoteError(ProblemsError):
    """A registry or store did not do what it was asked: try again, log in, or name another."""


class BuildError(AotkernError):
    """A variant could not be compiled: `key` names it, `reason` says why."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key}: {reason}")

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str]]:
        return type(self), (self.key, self.reason)


class MachineError(BuildError):
    """The machine, and not the kernel, kept a variant from being compiled: no memory, no space, no file descriptors."""


class MissingToolError(AotkernError):
    """Something that this operation needs is not installed: `tool` names it, `advice` says how to get it."""

    def __init__(self, tool: str, needed_for: str, advice: str) -> None:
        self.tool, self.needed_for, self.advice = tool, needed_for, advice
        super().__init__(f"{tool} is needed {needed_for}: {advice}")

    def __reduce__(self) -> tuple[type[MissingToolError], tuple[str, str, str]]:
        return type(self), (self.tool, self.needed_for, self.advice)


class EmulatorError(AotkernError):
    """The emulator stopped, because the code did what it must not or what the emulator does not know.

    Attributes:
        reason: What is wrong, in words.
        pc: Byte offset of the instruction in the code object's image, or None before the first one.
        instruction: The instruction as the disassembler spells it, or an empty string.
        lane: The first lane concerned, or None when it is no lane's fault.
        address: The address that was touched, or None when it was no memory access.
    """

    def __init__(
        self,
        reason: str,
        pc: int | None = None,
        instruction: str = "",
        lane: int | None = None,
        address: int | None = None,
    ) -> None:
        self.reason, self.pc, self.instruction, self.lane, self.address = reason, pc, instruction, lane, address
        place = "" if pc is None else f"at {pc:#x} ({instruction}): "
        who = "" if lane is None else f", lane {lane}"
        what = "" if address is None else f", address {address:#x}"
        super().__init__(f"{place}{reason}{who}{what}")

    def __reduce__(self) -> tuple[type[EmulatorError], tuple[str, int | None, str, int | None, int | None]]:
        return type(self), (self.reason, self.pc, self.instruction, self.lane, self.address)

    @property
    def mnemonic(self) -> str:
        """The first word of the instruction."""
        return self.instruction.partition(" ")[0]


class MissError(AotkernError):
    """No prebuilt variant serves a call: build one, or change the call.

    Attributes:
        kernel: The kernel that was called.
        nearest: Text of the nearest variant's key, or None when the kernel has no variant.
        problems: What differs from it.
    """

    def __init__(self, kernel: str, nearest: str | None, problems: Iterable[Problem], message: str) -> None:
        self.kernel, self.nearest, self.problems, self.message = kernel, nearest, tuple(problems), message
        super().__init__(message)

    def __reduce__(self) -> tuple[type[MissError], tuple[str, str | None, tuple[Problem, ...], str]]:
        return type(self), (self.kernel, self.nearest, self.problems, self.message)


class CaptureError(AotkernError):
    """A variant would have to be loaded while a graph is being captured: preload it before the capture.

    Nothing was done to the stream; the capture is still good.
    """

    def __init__(self, kernel: str, variant: str) -> None:
        self.kernel, self.variant = kernel, variant
        super().__init__(
            f"{kernel}: {variant} is not loaded, and cannot be while its stream is being captured; "
            f"call preload({kernel!r}) before the capture"
        )

    def __reduce__(self) -> tuple[type[CaptureError], tuple[str, str]]:
        return type(self), (self.kernel, self.variant)


class TargetError(AotkernError):
    """None of the bundles that were found fits the device: get or build one that does.

    Attributes:
        wanted: The device, in words.
        present: Each bundle with the reason why it does not fit.
    """

    def __init__(self, wanted: str, present: Iterable[tuple[str, str]]) -> None:
        self.wanted, self.present = wanted, tuple(present)
        rows = "".join(f"\n  {name}: {reason}" for name, reason in self.present) or " (no bundle was found)"
        super().__init__(f"no bundle fits {wanted}:{rows}")

    def __reduce__(self) -> tuple[type[TargetError], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.wanted, self.present)


class DriverError(AotkernError):
    """The GPU's driver refused an operation.

    Attributes:
        driver: `hip` or `cuda`.
        operation: The entry point that failed.
        code: The driver's own error code, unchanged.
        name: The driver's name for it.
        context: Device, kernel and bundle that it concerned, in words.
        advice: What to do about it; empty when aotkern knows no more than the driver.
    """

    def __init__(self, driver: str, operation: str, code: int, name: str, context: str, advice: str) -> None:
        self.driver, self.operation, self.code, self.name = driver, operation, code, name
        self.context, self.advice = context, advice
        tail = f"; {advice}" if advice else ""
        super().__init__(f"{driver}: {operation} failed with {name} ({code}), {context}{tail}")

    def __reduce__(self) -> tuple[type[DriverError], tuple[str, str, int, str, str, str]]:
        return type(self), (self.driver, self.operation, self.code, self.name, self.context, self.advice)


class UnexpectedCompileError(AotkernError):
    """A program was about to compile where its budget allows no compile: build the variant, or warm it up.

    Raised before anything is compiled.

    Attributes:
        key: Text of the variant's key.
        excess: Which budget is exceeded, in words.
        nearest: The nearest prebuilt variant and what differs from it; empty when none is known.
    """

    def __init__(self, key: str, excess: str, nearest: str) -> None:
        self.key, self.excess, self.nearest = key, excess, nearest
        super().__init__(f"unexpected compile of {key}: {excess}" + (f"\n{nearest}" if nearest else ""))

    def __reduce__(self) -> tuple[type[UnexpectedCompileError], tuple[str, str, str]]:
        return type(self), (self.key, self.excess, self.nearest)
