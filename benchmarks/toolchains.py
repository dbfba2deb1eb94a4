"""The table of `aotkern.build.wheels`: rows from Triton's wheels, and the proof that the builds of a version are one.

    python -m pip download --no-deps --only-binary :all: --python-version 3.12 triton==3.9.0      # and so on
    python -m benchmarks.toolchains rows *.whl
    python -m benchmarks.toolchains prove PYTHON... [--only PATTERN]

Each PYTHON has one version of Triton, for its own ABI, and aotkern's dependencies. `rows` also says which other files
of the wheels differ: there must be none that compiles. `prove` compiles the shipped kernels with each, without a store,
and holds the code objects against each other, byte by byte.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from aotkern.build import toolchain

ROOT = Path(__file__).parents[1]
LIBRARY = "triton/_C/libtriton.so"


def record(wheel: Path) -> dict[str, str]:
    """The SHA-256 of each file of a wheel, in hexadecimal, by path."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = csv.reader(io.StringIO(archive.read(name).decode()))
        pairs = ((path, digest.partition("=")[2]) for path, digest, _ in rows if digest)
        return {path: base64.urlsafe_b64decode(f"{digest}=").hex() for path, digest in pairs}


def compiles(path: str) -> bool:
    """Whether a file of a wheel is part of what compiles; see `toolchain`."""
    parts = path.split("/")
    part_of_it = parts[0] == "triton" and len(parts) > 1 and parts[1] in toolchain._PARTS
    return (
        part_of_it and not set(parts) & set(toolchain._IGNORED_NAMES) and not path.endswith(toolchain._IGNORED_SUFFIXES)
    )


def rows(wheels: list[Path]) -> int:
    """Print the table; 1 when wheels of one version differ in more than the library."""
    versions: dict[str, dict[str, dict[str, str]]] = {}
    for wheel in sorted(wheels):
        _, version, python, abi, _ = wheel.name.split("-", 4)
        tag = python if abi == python else f"{python}-{abi}"
        versions.setdefault(version, {})[tag] = record(wheel)
    others: set[str] = set()
    for builds in versions.values():
        first = next(iter(builds.values()))
        for found in builds.values():
            different = {path for path in {*first, *found} if first.get(path) != found.get(path)}
            others |= {path for path in different if compiles(path)} - {LIBRARY}
    print(
        json.dumps(
            {v: {tag: found[LIBRARY] for tag, found in builds.items()} for v, builds in versions.items()}, indent=4
        )
    )
    print(f"other files that compile and differ: {', '.join(sorted(others)) or 'none'}")
    return 1 if others else 0


def prove(pythons: list[str], only: str) -> int:
    """Compile with each; 1 when code objects or the toolchain's digest differ."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for python in map(os.path.abspath, pythons):
        with tempfile.TemporaryDirectory() as folder:
            command = ["-m", "aotkern", "build", str(ROOT / "kernels"), "-t", "gfx942", "--only", only, "--no-cache"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run([python, *command, "-o", folder, "--name", "x"], check=True, env=environment, cwd=folder)
            show = [python, "-m", "aotkern", "show", f"{folder}/x.gfx942.aotk", "--json"]
            shown = subprocess.run(show, check=True, env=environment, capture_output=True, cwd=folder).stdout
        manifest = json.loads(shown)["manifest"]
        code = {row["key"] if isinstance(row, dict) else str(row[0]): json.dumps(row) for row in manifest["variants"]}
        found[python] = manifest["toolchain"]["triton_digest"], code
        print(f"{python}: {manifest['toolchain']}, {len(code)} variants")
    same = len({json.dumps(values) for values in found.values()}) == 1
    print("the same toolchain and the same code objects" if same else "DIFFERENT")
    return 0 if same else 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rows").add_argument("wheels", nargs="+", type=Path)
    proof = commands.add_parser("prove")
    proof.add_argument("pythons", nargs="+")
    proof.add_argument("--only", default="insert_*")
    given = parser.parse_args()
    return rows(given.wheels) if given.command == "rows" else prove(given.pythons, given.only)


if __name__ == "__main__":
    sys.exit(main())
