"""Running the cases of one variant, in each order of waves, and judging what comes out.

A case shows something when each array that the code stored to was compared with an expectation that would not have held
before the launch as well. Whatever falls short of that is a doubt, which no audit passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotkern.audit.cases import Case, CaseFunction, Exact, Ignored, Near, Sparse, Typed, constants
from aotkern.audit.execution import Execution, Executor, changed, copied, data_of
from aotkern.audit.judging import Judged, judge
from aotkern.emulator.errors import UndecidedError
from aotkern.emulator.reach import Gap
from aotkern.errors import AotkernError, EmulatorError, MissingToolError
from aotkern.manifest import VariantEntry


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case on one variant.

    Attributes:
        key: The variant.
        case: Name of the case.
        seed: What its inputs were drawn from.
        error: Why it is wrong, or nothing.
        worst: For each output, the largest absolute error and the relative L2 error (0, 0 for exact ones).
        doubt: Why it does not show that the code is right, or nothing.
        orders: The orders of waves in which it ran to its end.
        compared: Elements that were compared in each of them.
    """

    key: str
    case: str
    seed: int
    error: str
    worst: Mapping[str, tuple[float, float]]
    doubt: str = ""
    orders: tuple[str, ...] = ()
    compared: int = 0


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which instructions of a code object the cases executed.

    Attributes:
        executed: How many of them ran at least once.
        reachable: How many a launch can come to.
        gaps: Those that did not run.
        complete: Whether every jump could be followed; if not, more may be reachable.
    """

    executed: int
    reachable: int
    gaps: tuple[Gap, ...]
    complete: bool = True

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.executed / self.reachable if self.reachable else 0.0


@dataclass(frozen=True, slots=True)
class Examined:
    """All cases of one variant.

    Attributes:
        key: The variant.
        outcomes: One for each case.
        addresses: Offsets of the instructions that ran; None where that is not known.
    """

    key: str
    outcomes: tuple[Outcome, ...]
    addresses: frozenset[int] | None


def examine(variant: VariantEntry, cases: CaseFunction, executors: Sequence[Executor], seed: int) -> Examined:
    """Run every case of a variant.

    Raises:
        MissingToolError: What executes the code is not installed.
    """
    ran: list[Execution] = []
    outcomes: list[Outcome] = []
    try:
        for case in cases(variant.key, seed):
            outcomes.append(_run(variant, case, executors, seed, ran))
    except MissingToolError:
        raise
    except Exception as error:  # cases are code of the project: what they raise is told, and hides no other variant
        doubt = f"the cases could not be drawn: {type(error).__name__}: {error}"
        outcomes.append(Outcome(variant.text, "drawing", seed, "", {}, doubt))
    if not outcomes:
        outcomes.append(Outcome(variant.text, "none", seed, "", {}, "there is no case for this variant"))
    if ran and not any(execution.stored for execution in ran):
        doubt = "in none of the cases does the code store to an array"
        outcomes.append(Outcome(variant.text, "all cases", seed, "", {}, doubt))
    known = [execution.addresses for execution in ran]
    addresses = None if None in known or not known else frozenset().union(*(a for a in known if a is not None))
    return Examined(variant.text, tuple(outcomes), addresses)


def run_case(variant: VariantEntry, case: Case, executor: Executor, seed: int) -> Outcome:
    """Run one case in one order; its inputs were drawn from `seed`, and stay as they are."""
    return _run(variant, case, (executor,), seed, [])


def _run(variant: VariantEntry, case: Case, executors: Sequence[Executor], seed: int, ran: list[Execution]) -> Outcome:
    attempt = _Attempt(case, _misfits(case), _evidence(case))
    for executor in executors:
        attempt.run(variant, executor, ran)
        if attempt.errors:
            break
    error, doubt = "; ".join(attempt.errors), "; ".join(dict.fromkeys(attempt.doubts))
    return Outcome(variant.text, case.name, seed, error, attempt.worst, doubt, tuple(attempt.orders), attempt.compared)


def _misfits(case: Case) -> list[str]:
    """Expectations that are about no array of the case."""
    return [
        f"{name}: an expectation for {'no array' if name in case.arguments else 'no argument'} of the case"
        for name in case.expected
        if data_of(case.arguments.get(name)) is None and not isinstance(case.arguments.get(name), Sparse)
    ]


def _evidence(case: Case) -> dict[str, bool]:
    """For each expectation, whether it does not hold already before the launch."""
    found: dict[str, bool] = {}
    for name, expected in case.expected.items():
        given = case.arguments.get(name)
        if isinstance(expected, Ignored):
            continue
        if isinstance(given, Sparse):
            found[name] = not _same_pieces(given, expected)
        elif data_of(given) is not None:
            before: Any = given
            with np.errstate(all="ignore"):
                judged = judge(before, expected)
            found[name] = bool(judged.wrong or judged.doubt)
    return found


def _same_pieces(given: Sparse, expected: Exact | Near) -> bool:
    wanted = expected.data
    if not isinstance(wanted, Sparse) or wanted.pieces.keys() != given.pieces.keys():
        return False
    return all(np.array_equal(piece, wanted.pieces[offset]) for offset, piece in given.pieces.items())


class _Attempt:
    """A case while it is run in one order after another."""

    def __init__(self, case: Case, doubts: list[str], evidence: Mapping[str, bool]) -> None:
        self._case, self._evidence = case, evidence
        self.doubts = doubts
        self.errors: list[str] = []
        self.orders: list[str] = []
        self.worst: dict[str, tuple[float, float]] = {}
        self.compared = 0

    def run(self, variant: VariantEntry, executor: Executor, ran: list[Execution]) -> None:
        """Launch, and judge every output."""
        case, where = self._case, f"in order {executor.order}: " if self.orders else ""
        values = {name: copied(value) for name, value in case.arguments.items()}
        try:
            execution = executor.run(variant, case, {**constants(variant.key), **values})
        except MissingToolError:
            raise
        except UndecidedError as error:
            self.doubts.append(f"{where}cannot be run: {error}")
            return
        except EmulatorError as error:
            self.errors.append(f"{where}{type(error).__name__}: {error}")
            return
        except AotkernError as error:
            self.doubts.append(f"{where}{type(error).__name__}: {error}")
            return
        except Exception as error:  # no memory, a driver that fails, a fault of our own: nothing was shown
            self.doubts.append(f"{where}cannot be run: {type(error).__name__}: {error}")
            return
        self.orders.append(executor.order)
        if execution is not None:
            ran.append(execution)
        self._judge(where, values, changed(values, case) if execution is None else execution.stored)

    def _judge(self, where: str, values: Mapping[str, Any], stored: Mapping[str, frozenset[int]]) -> None:
        judged = {
            name: judge(values[name], expected, stored.get(name, frozenset()))
            for name, expected in self._case.expected.items()
            if data_of(values.get(name)) is not None
        }
        self.errors += [f"{where}{name}: {one.wrong}" for name, one in judged.items() if one.wrong]
        self.doubts += [f"{where}{name}: {one.doubt}" for name, one in judged.items() if one.doubt]
        self.doubts += self._unseen(judged, stored)
        for name, one in judged.items():
            before = self.worst.get(name, (0.0, 0.0))
            self.worst[name] = (max(before[0], one.worst[0]), max(before[1], one.worst[1]))
        self.compared = sum(one.compared for one in judged.values())

    def _unseen(self, judged: Mapping[str, Judged], stored: Mapping[str, frozenset[int]]) -> list[str]:
        """What the code did that the case does not see."""
        expected = self._case.expected
        doubts = [
            f"{name}: the code stores to it, and nothing is expected of it" for name in stored if name not in expected
        ]
        if not any(one.compared for one in judged.values()):
            doubts.append("nothing is compared")
        elif not any(self._evidence.values()) and any(name in stored for name in self._evidence):
            doubts.append("what is expected holds before the launch: code that does nothing would pass")
        doubts += [
            f"{name}: what is expected holds before the launch already"
            for name, shows in self._evidence.items()
            if name in stored and not shows and isinstance(expected[name], Near)
        ]
        return doubts


__all__ = ["Case", "Coverage", "Examined", "Outcome", "Typed", "examine", "run_case"]
