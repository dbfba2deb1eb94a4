"""The versions of Triton that aotkern was tested with, and what for.

Release bundles are built by the one version that `pyproject.toml` pins, because their bytes depend on it. A program
that brings another version may be built for by that version, and served what it built, as far as it stands here: what
a launch needs to know (metadata, scratch, the order of parameters) changes from version to version.

`make tritons` runs the tests of building and serving on each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotkern.target import Backend

TESTED: Mapping[str, tuple[Backend, ...]] = {
    "3.9.0": (Backend.HIP, Backend.CUDA),
    "3.8.0": (Backend.HIP, Backend.CUDA),
    "3.7.1": (Backend.HIP, Backend.CUDA),
    "3.6.0": (Backend.HIP, Backend.CUDA),
}


def tested(version: str, backend: Backend) -> bool:
    """Whether a version was tested for a back end; what follows a `+` in it names a build of the same version."""
    return backend in TESTED.get(version.partition("+")[0], ())


def for_people() -> str:
    """All tested versions with their back ends, in words."""
    return ", ".join(f"{version} ({' and '.join(backends)})" for version, backends in sorted(TESTED.items()))
