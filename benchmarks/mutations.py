"""How many wrong instructions the numerics audit finds: single bits flipped in instructions that were executed.

    python benchmarks/mutations.py BUNDLE... [--places 300] [--seed 0] [--json FILE]
    python benchmarks/mutations.py BUNDLE... --remove s_waitcnt|s_barrier [--places 300] [--seed 0]

The places are spread evenly over the kernels of all bundles, and within a kernel over a few of its variants. A place is
an instruction that the audit's own cases execute, and one of its bits; both are drawn from the seed. The changed code
then runs the same cases:

    caught       an output is wrong, or the code did what it must not
    no effect    the bit means nothing: the instruction is spelt as before, or differs only in what an emulator does not
                 model (waits, pauses, cache hints)
    equivalent   all memory of the launches is equal bit by bit, with the audit's inputs and with those of `WIDER` other
                 seeds, which draw other sizes and strides as well
    not caught   everything else: memory differs within the tolerance, or differs for other inputs only

The share that counts is that of `caught` among `caught` and `not caught`. That an equivalent is one rests on the inputs
that were tried, so the report also says what the share would be if every equivalent were a mistake that nobody saw.

With `--remove` an executed wait or barrier becomes `s_nop`, and the changed code runs with late memory and with the
search for races. None is called equivalent: whatever is not noticed counts as `not caught`, also a wait with nothing
outstanding and a barrier between accesses that do not meet.
"""

from __future__ import annotations

import argparse
import importlib
import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aotkern.audit.cases import Case, CaseFunction, Sparse
from aotkern.audit.execution import PAGE, Execution, data_of, pages_of
from aotkern.audit.executors import Emulated
from aotkern.audit.numerics import Outcome, choose, run_case
from aotkern.bundle import Bundle
from aotkern.codeobject import elf
from aotkern.drivers.emulator import EmulatorDriver
from aotkern.drivers.protocol import Function
from aotkern.emulator.control import WITHOUT_EFFECT
from aotkern.emulator.disassembler import Instruction, decode
from aotkern.errors import AotkernError
from aotkern.manifest import VariantEntry
from aotkern.target import Target

WIDER = tuple(range(101, 109))
"""Seeds of the further inputs that tell an equivalent mutation."""
IDLE = WITHOUT_EFFECT | {"s_endpgm"}
"""Instructions whose operand means nothing to an emulator."""
NOP = 0xBF800000
"""`s_nop 0`, as long as a wait or a barrier."""
HINTS = ("sc0", "sc1", "nt")
VARIANTS = 3
"""Most variants of one kernel that are changed."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One flipped bit and what came of it.

    Attributes:
        key: The variant.
        offset: Of the instruction, in the image.
        bit: Counted from the lowest bit of its first byte; -1 where the whole instruction was taken out.
        before: The instruction.
        after: What it became.
        result: `caught`, `no effect`, `equivalent` or `not caught`.
        why: The first error, or how the result was told.
    """

    key: str
    offset: int
    bit: int
    before: str
    after: str
    result: str
    why: str


class Planted(EmulatorDriver):
    """An emulator that executes other bytes than those that it is given to load."""

    image: bytes | None = None

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        return super().load(device, self.image or image, symbol, shared)


class Recording:
    """An executor that keeps the memory of every launch.

    Attributes:
        memory: Of each launch: all arrays, as bytes.
        instructions: Wave instructions of the longest launch.
        executed: Image offsets of all instructions that were executed.
    """

    on = "emulator"
    order = "lockstep"

    def __init__(
        self, bundle: Path, target: Target, image: bytes | None = None, limit: int = 1 << 32, strict: bool = False
    ) -> None:
        self._driver = Planted(limit=limit, detect_races=strict, latest=strict)
        self._driver.image = image
        self._emulated = Emulated(bundle, target.arch, self._driver)
        self.memory: list[bytes] = []
        self.instructions = 0
        self.executed: set[int] = set()

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> Execution:
        """Launch once, and keep what stands in memory."""
        execution = self._emulated.run(variant, case, values)
        kept = (held(case.arguments.get(name), value, execution.stored.get(name, ())) for name, value in values.items())
        self.memory.append(b"".join(kept))
        if self._driver.last is not None:
            self.instructions = max(self.instructions, self._driver.last.wave_instructions)
            self.executed.update(self._driver.last.addresses)
        return execution


def held(given: object, value: object, stored: Iterable[int]) -> bytes:
    """What stands in an argument's memory; of sparse memory the pages that hold something or were stored to."""
    array = data_of(value)
    if array is None:
        return b""
    if not isinstance(given, Sparse):
        return array.tobytes()
    flat = array.reshape(-1).view(np.uint8)
    pages = sorted(pages_of(given).union(stored))
    return b"".join(page.to_bytes(8, "little") + flat[page * PAGE :][:PAGE].tobytes() for page in pages)


@dataclass
class Subject:
    """A variant to be changed, with what it does unchanged."""

    bundle: Path
    variant: VariantEntry
    image: bytes
    cases: CaseFunction
    _drawn: dict[int, list[Case]] = field(default_factory=dict)
    _right: dict[int, Recording] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return self.variant.key.target

    def drawn(self, seed: int) -> list[Case]:
        """The cases of a seed, drawn once."""
        if seed not in self._drawn:
            self._drawn[seed] = list(self.cases(self.variant.key, seed))
        return self._drawn[seed]

    def right(self, seed: int) -> Recording:
        """What the unchanged code does; it must pass its audit."""
        if seed not in self._right:
            recording = Recording(self.bundle, self.target)
            for case in self.drawn(seed):
                if error := failure(run_case(self.variant, case, recording, seed)):
                    raise SystemExit(f"{self.variant.text}: wrong before any change: {error}")
            self._right[seed] = recording
        return self._right[seed]

    def judge(self, image: bytes, seed: int, strict: bool = False) -> tuple[str, bool]:
        """The first error of changed code, and whether all memory is as it should be, bit by bit."""
        right = self.right(seed)
        recording = Recording(self.bundle, self.target, image, 4 * right.instructions + 100_000, strict)
        for case in self.drawn(seed):
            if error := failure(run_case(self.variant, case, recording, seed)):
                return f"{case.name}: {error}", False
        return "", recording.memory == right.memory

    def place(self, offset: int) -> int:
        """Where an offset of the image stands in the file."""
        loads = elf.parse(self.image, self.variant.text).loads
        load = next(load for load in loads if load.address <= offset < load.address + load.size)
        return offset - load.address + load.offset

    def executed(self, name: str, seed: int) -> list[tuple[int, Instruction]]:
        """Executed instructions of a name, with their offsets in the image."""
        offsets = sorted(self.right(seed).executed)
        found = [(offset, decode(self.image, self.target, self.place(offset))) for offset in offsets]
        return [(offset, instruction) for offset, instruction in found if instruction.name == name]

    def remove(self, offset: int, before: Instruction, seed: int) -> Mutation:
        """Put `s_nop` in place of a wait or a barrier."""
        image = bytearray(self.image)
        struct.pack_into("<I", image, self.place(offset), NOP)
        error, _ = self.judge(bytes(image), seed, strict=True)
        result = "caught" if error else "not caught"
        return Mutation(self.variant.text, offset, -1, before.text, "s_nop 0", result, error)

    def mutate(self, rng: np.random.Generator, seed: int) -> Mutation:
        """Flip one bit of one executed instruction."""
        offset = int(rng.choice(sorted(self.right(seed).executed)))
        place = self.place(offset)
        before = decode(self.image, self.target, place)
        bit = int(rng.integers(len(before.code) * 8))
        image = bytearray(self.image)
        image[place + bit // 8] ^= 1 << bit % 8
        try:
            found = decode(bytes(image), self.target, place)
        except AotkernError as error:
            return Mutation(self.variant.text, offset, bit, before.text, str(error), *self.classify(bytes(image), seed))
        if told(before) == told(found):
            result, why = "no effect", "the same but for what is not modelled"
        else:
            result, why = self.classify(bytes(image), seed)
        return Mutation(self.variant.text, offset, bit, before.text, found.text, result, why)

    def classify(self, image: bytes, seed: int) -> tuple[str, str]:
        """What became of changed code, and how that was told."""
        error, same = self.judge(image, seed)
        if error:
            return "caught", error
        if not same:
            return "not caught", "memory differs within the tolerance"
        for other in WIDER:
            error, same = self.judge(image, other)
            if error or not same:
                return "not caught", f"only with seed {other}: {error or 'memory differs within the tolerance'}"
        return "equivalent", f"memory is equal with {1 + len(WIDER)} seeds"


def failure(outcome: Outcome) -> str:
    """Why a case does not pass, wrong or not to be told."""
    return outcome.error or outcome.doubt


def told(instruction: Instruction) -> tuple[object, ...]:
    """What an emulator sees of an instruction."""
    if instruction.name in IDLE:
        return (instruction.name,)
    seen = tuple(pair for pair in instruction.modifiers if pair[0] not in HINTS)
    return len(instruction.code), instruction.mnemonic, instruction.operands, seen


def subjects(paths: list[Path], cases: Mapping[str, CaseFunction], seed: int) -> Iterator[list[Subject]]:
    """Of each kernel of each bundle, the variants to be changed."""
    for path in paths:
        bundle = Bundle.open(path)
        for kernel in bundle.manifest.kernels:
            entries = [variant for variant in bundle.manifest.variants if variant.kernel == kernel.name]
            yield [
                Subject(path, variant, bundle.object(variant.object), cases[kernel.name])
                for variant in choose(entries, VARIANTS, seed)
            ]


def removals(
    kernels: list[list[Subject]], arguments: argparse.Namespace, rng: np.random.Generator
) -> list[tuple[Subject, int, Instruction]]:
    """The waits or barriers that are taken out: those of one variant of each kernel, drawn where they are too many."""
    if not arguments.remove:
        return []
    first = [kernel[0] for kernel in kernels]
    all_of_them = [
        (subject, offset, before)
        for subject in first
        for offset, before in subject.executed(arguments.remove, arguments.seed)
    ]
    chosen = rng.permutation(len(all_of_them))[: arguments.places]
    return [all_of_them[index] for index in sorted(chosen)]


def report(mutations: list[Mutation]) -> str:
    """A row for each kernel and target, and the sum."""
    rows: dict[str, Counter[str]] = {}
    for mutation in mutations:
        name = mutation.key.partition("(")[0]
        rows.setdefault(name, Counter())[mutation.result] += 1
    total: Counter[str] = sum(rows.values(), Counter())
    results = ("caught", "no effect", "equivalent", "not caught")
    lines = [f"| kernel | places | {' | '.join(results)} |", "|---|---:|---:|---:|---:|---:|"]
    for name, counts in [*rows.items(), ("**all**", total)]:
        lines.append(f"| {name} | {counts.total()} | " + " | ".join(str(counts[result]) for result in results) + " |")
    caught, missed = total["caught"], total["not caught"]
    least = caught, caught + missed + total["equivalent"]
    return "\n".join(
        [
            *lines,
            "",
            f"caught of those that are not equivalent: {caught} of {caught + missed}, {caught / (caught + missed):.1%}",
            f"if every equivalent counted as missed: {least[0]} of {least[1]}, {least[0] / least[1]:.1%}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--cases", default="aotkern_kernels.cases", help="module with CASES")
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--remove", choices=("s_waitcnt", "s_barrier"), help="take these out, at most so many places")
    parser.add_argument("--json", type=Path, help="every mutation, one a line")
    arguments = parser.parse_args()
    cases = importlib.import_module(arguments.cases).CASES
    kernels = list(subjects(arguments.bundles, cases, arguments.seed))
    rng = np.random.default_rng(arguments.seed)
    started = time.perf_counter()
    mutations: list[Mutation] = []
    for number, (subject, offset, before) in enumerate(removals(kernels, arguments, rng)):
        mutations.append(subject.remove(offset, before, arguments.seed))
        print(f"{number + 1} {mutations[-1]}", file=sys.stderr, flush=True)
    for place in range(0 if arguments.remove else arguments.places):
        kernel = kernels[place % len(kernels)]
        subject = kernel[place // len(kernels) % len(kernel)]
        mutations.append(subject.mutate(rng, arguments.seed))
        print(f"{place + 1}/{arguments.places} {mutations[-1]}", file=sys.stderr, flush=True)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(asdict(mutation)) + "\n" for mutation in mutations))
    print(report(mutations))
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
