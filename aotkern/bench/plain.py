"""What one would write instead of `aotkern build`: a loop over `triton.compile`, one variant after the other.

    python -m aotkern.bench.plain FOLDER TARGET PATTERN... -- SOURCE...

Runs in a process of its own, whose environment says where Triton's cache is; the cache folder is the result. Nothing is
checked, hashed, packed or kept beside it. With a FOLDER other than `-`, each code object is written there as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aotkern.build import compiler, registry
from aotkern.spec import expand
from aotkern.spec.select import selected
from aotkern.target import Target


def compile_all(folder: Path | None, target: Target, only: tuple[str, ...], sources: list[str]) -> int:
    """Compile what the sources declare for a target; how many variants that were.

    Raises:
        InputError: The sources cannot be imported, or their declarations are wrong.
        BuildError: A variant does not compile.
    """
    count = 0
    for kernel in registry.load([registry.Source.parse(source) for source in sources]):
        for key in expand(kernel.declaration, kernel.parameters, target):
            if selected(str(key), only):
                data = compiler.plain(kernel, key)
                count += 1
                if folder is not None:
                    (folder / f"{count}.bin").write_bytes(data)
    return count


def command(folder: str, target: Target, only: tuple[str, ...], sources: tuple[str, ...]) -> list[str]:
    """The command line of this module."""
    return [sys.executable, "-m", "aotkern.bench.plain", folder, str(target), *only, "--", *sources]


if __name__ == "__main__":
    place = sys.argv.index("--")
    where, named, *patterns = sys.argv[1:place]
    into = None if where == "-" else Path(where)
    compile_all(into, Target.parse(named), tuple(patterns), sys.argv[place + 1 :])
