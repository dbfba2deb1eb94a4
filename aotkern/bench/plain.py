"""What one would write instead of `aotkern build`: a loop over `triton.compile`, one variant after the other.

    python -m aotkern.bench.plain --share=PLACE/COUNT TARGET PATTERN... -- SOURCE...

Runs in a process of its own, whose environment says where Triton's cache is; the cache folder is the result. Nothing is
checked, hashed, packed or kept beside it. A share is every COUNT-th variant, for several loops at once.
"""

from __future__ import annotations

import itertools
import sys

from aotkern.build import compiler, registry
from aotkern.spec import expand
from aotkern.spec.select import selected
from aotkern.target import Target


def compile_all(target: Target, only: tuple[str, ...], sources: list[str], share: tuple[int, int] = (0, 1)) -> int:
    """Compile what the sources declare for a target, or a share of it; how many variants that were.

    Raises:
        InputError: The sources cannot be imported, or their declarations are wrong.
        BuildError: A variant does not compile.
    """
    place, count = share
    done = 0
    kernels = registry.load([registry.Source.parse(source) for source in sources])
    keys = ((kernel, key) for kernel in kernels for key in expand(kernel.declaration, kernel.parameters, target))
    for kernel, key in itertools.islice((pair for pair in keys if selected(str(pair[1]), only)), place, None, count):
        compiler.plain(kernel, key)
        done += 1
    return done


def command(
    target: Target, only: tuple[str, ...], sources: tuple[str, ...], share: tuple[int, int] = (0, 1)
) -> list[str]:
    """The command line of this module."""
    part = f"--share={share[0]}/{share[1]}"
    return [sys.executable, "-m", "aotkern.bench.plain", part, str(target), *only, "--", *sources]


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    place = arguments.index("--")
    words, sources = arguments[:place], arguments[place + 1 :]
    first, count = words.pop(0).partition("=")[2].split("/")
    compile_all(Target.parse(words[0]), tuple(words[1:]), sources, (int(first), int(count)))


if __name__ == "__main__":
    main(sys.argv[1:])
