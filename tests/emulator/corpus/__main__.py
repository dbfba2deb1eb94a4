"""Run the corpus: `python -m tests.emulator.corpus [--arch gfx942] [--only TEXT] [--jobs N] [--cache FOLDER]`.

Prints every outcome that is not right, then the coverage table as Markdown. Exit 1 when something is wrong, cannot run
or is flagged by the static check.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from .runner import jobs_here, private_cache, run_all, table


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", choices=("gfx942", "gfx950"))
    parser.add_argument("--only", default="", help="configurations whose kind or name contains this text")
    parser.add_argument("--jobs", type=int, default=jobs_here())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", help="keep Triton's compiled kernels in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        private_cache(options.cache or folder)
        return _run(options)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _run(options: argparse.Namespace) -> int:
    from . import CONFIGURATIONS

    archs = options.arch or ["gfx942", "gfx950"]
    places = [at for at, one in enumerate(CONFIGURATIONS) if options.only in f"{one.kind}: {one.name}"]
    outcomes = []
    bad = 0
    for one in run_all(places, archs, options.seed, options.jobs):
        outcomes.append(one)
        allowed = one.state in ("right", "explained") or (
            one.state == "not compiled" and one.arch in next(c for c in CONFIGURATIONS if c.name == one.name).refused
        )
        bad += not allowed or bool(one.static)
        if one.state != "right" or one.static:
            head = f"{one.state}: {one.kind}: {one.name}, {one.arch}: {one.detail}"
            _say("\n    ".join((head, *one.static[:3])))
    _say("\n" + table(outcomes, archs))
    seconds, count = sum(one.seconds for one in outcomes), sum(one.instructions for one in outcomes)
    size = f"{len(outcomes)} pairs of {len(places)} configurations and a target"
    _say(f"\n{size}, {count} wave instructions in {seconds:.0f} s, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
