"""How many faults in machine code the numerics audit notices: single bits flipped in instructions that were executed.

    python benchmarks/mutations.py BUNDLE OUT.json [--places 300] [--seed 0] [--most 2]

For each place a variant, a case of the numerics audit, an instruction that this case executed and one bit of it are
drawn from the seed; the case runs with that bit flipped. The fault counts as caught when the emulator stops, when an
output is wrong by the audit's own tolerance, or when the static check finds something that it did not find before.

Told as equivalent, and left out of the share, are faults after which the instruction means the same to a functional
emulator: the decoder spells it alike, or both spellings differ only in cache hints of loads and stores, or both are
instructions without effect (waits, nops). Whatever else survives counts as missed, though some of it is equivalent too:
results that nothing reads, conditions that no input can tell apart, bits far below a tolerance.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aotkern_kernels.cases

from aotkern.audit.cases import Case, constants
from aotkern.audit.executors import Emulated
from aotkern.audit.numerics import _copied, choose, judge
from aotkern.bundle import Bundle
from aotkern.codeobject import elf
from aotkern.drivers.emulator import EmulatorDriver
from aotkern.drivers.protocol import Launch
from aotkern.emulator.control import WITHOUT_EFFECT
from aotkern.emulator.disassembler import Instruction, decode
from aotkern.emulator.static import check
from aotkern.errors import AotkernError, EmulatorError
from aotkern.manifest import VariantEntry
from aotkern.target import Target

_HINTS = re.compile(r" (sc0|sc1|nt)\b")


class MutatingDriver(EmulatorDriver):
    """Runs images with one bit flipped, and keeps the image that it was given."""

    flip: tuple[int, int] | None = None
    image = b""

    def launch(self, launch: Launch) -> None:
        """Execute the changed image."""
        self.image = self._images[launch.function.module]
        if self.flip is None:
            super().launch(launch)
            return
        self._images[launch.function.module] = flipped(self.image, *self.flip)
        try:
            super().launch(launch)
        finally:
            self._images[launch.function.module] = self.image


@dataclass(frozen=True, slots=True)
class Ground:
    """A case of a variant, the image that it runs and the instructions that it executes there."""

    variant: VariantEntry
    case: Case
    image: bytes
    addresses: tuple[int, ...]


def flipped(image: bytes, place: int, bit: int) -> bytes:
    """The image with one bit of one byte flipped."""
    return image[:place] + bytes([image[place] ^ 1 << bit]) + image[place + 1 :]


def verdict(executor: Emulated, ground: Ground) -> str:
    """Why a run is wrong, or nothing."""
    values = {name: _copied(value) for name, value in ground.case.arguments.items()}
    try:
        executor.run(ground.variant, ground.case, {**constants(ground.variant.key), **values})
    except AotkernError as error:
        return type(error).__name__
    wrong = [name for name, expected in ground.case.expected.items() if judge(values[name], expected)[1]]
    return f"wrong {', '.join(wrong)}" if wrong else ""


def grounds(bundle: Bundle, executor: Emulated, driver: MutatingDriver, most: int) -> Iterator[Ground]:
    """Every case of the chosen variants, run once as it is."""
    for kernel in bundle.manifest.kernels:
        distinct = list({v.object: v for v in bundle.manifest.variants if v.kernel == kernel.name}.values())
        for variant in choose(distinct, most, 0):
            for case in aotkern_kernels.cases.CASES[kernel.name](variant.key, 0):
                ground = Ground(variant, case, b"", ())
                found = verdict(executor, ground)
                if found or driver.last is None:
                    raise SystemExit(f"{variant.text}, {case.name}: {found} without any fault")
                yield Ground(variant, case, driver.image, driver.last.addresses)


def equivalent(before: Instruction, after: Instruction) -> bool:
    """Whether two spellings mean the same to a functional emulator."""
    idle = WITHOUT_EFFECT | {"s_endpgm"}  # whose constant means nothing either
    if before.text == after.text or (before.name == after.name and before.name in idle):
        return True
    if "_store" in before.name or "_load" in before.name:
        return _HINTS.sub("", before.text) == _HINTS.sub("", after.text) and "lds" not in after.text
    return False


def outcome(
    rng: random.Random, ground: Ground, executor: Emulated, driver: MutatingDriver, target: Target
) -> dict[str, Any]:
    """Flip one drawn bit and say what became of it."""
    text = elf.parse(ground.image, "image").section(".text")
    shift = text.offset - text.address
    pc = rng.choice(ground.addresses)
    before = decode(ground.image, target, pc + shift, -shift)
    place, bit = pc + shift + rng.randrange(len(before.code)), rng.randrange(8)
    changed = flipped(ground.image, place, bit)
    row: dict[str, Any] = {"kernel": ground.variant.kernel, "case": ground.case.name, "pc": pc, "before": before.text}
    try:
        after = decode(changed, target, pc + shift, -shift)
    except EmulatorError:
        return row | {"after": "", "outcome": "caught: no instruction"}
    row["after"] = after.text
    if equivalent(before, after):
        return row | {"outcome": "equivalent"}
    driver.flip = (place, bit)
    found = verdict(executor, ground)
    driver.flip = None
    if found:
        return row | {"outcome": f"caught: {found}"}
    if set(check(changed)) - set(check(ground.image)):
        return row | {"outcome": "caught: static check"}
    return row | {"outcome": "missed"}


def main() -> None:
    """Draw, run, count, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=2)
    given = parser.parse_args()
    driver = MutatingDriver()
    bundle = Bundle.open(given.bundle)
    target = bundle.manifest.target
    executor = Emulated(given.bundle, target.arch, driver)
    ground = list(grounds(bundle, executor, driver, given.most))
    rng = random.Random(given.seed)
    rows = []
    for _ in range(given.places):
        rows.append(outcome(rng, rng.choice(ground), executor, driver, target))
        print(rows[-1]["outcome"], rows[-1]["before"], "->", rows[-1]["after"], flush=True)
    counts = Counter(str(row["outcome"]).partition(":")[0] for row in rows)
    share = counts["caught"] / max(1, counts["caught"] + counts["missed"])
    print(dict(counts), f"caught {share:.1%}")
    given.out.write_text(
        json.dumps({"target": str(target), "counts": counts, "share": share, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
