"""Builds of one code generator: native libraries that differ only in the Python that they are built for.

A release of Triton has a wheel for each Python ABI. The wheels of one release hold the same files but for
`libtriton.so`, which is linked against one ABI; the code generator inside is the same source with the same LLVM. So the
libraries of one release, each known by the digest of its bytes, count as one. A library that is not in this table, a
patched or rebuilt one for instance, counts as itself.

`python -m benchmarks.toolchains` makes the rows from wheels, and proves them: every wheel compiles the same binaries.
"""

from __future__ import annotations

from collections.abc import Mapping

LIBTRITON: Mapping[str, Mapping[str, str]] = {
    "3.9.0": {
        "cp311": "6468a93ed0e2a906ffcc3eda75bff34cf830e4e96b0aa54e6423730a925f8618",
        "cp312-abi3": "032368510e0cb8626ece319815972d8a35c8196ef013f049aa1b4ca39ede5be5",
    },
    "3.8.0": {
        "cp311": "309812db19bebbcb417807a0e335dfbab6627be43be4374a3693cba8be94f45f",
        "cp310": "c3306b024133cf76abba389ac00c6dc9cb9127be6a0796aef2acf2134e5f082f",
    },
}
"""SHA-256 of `triton/_C/libtriton.so`, by version and wheel (Linux, x86-64). The first of a version speaks for all."""

_SPEAKERS = {digest: next(iter(builds.values())) for builds in LIBTRITON.values() for digest in builds.values()}


def speaker(digest: str) -> str:
    """The digest that stands for a file, in hexadecimal: its own, or that of an equivalent build."""
    return _SPEAKERS.get(digest, digest)
