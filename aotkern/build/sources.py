"""What a user names as kernels: defaults, labels and provenance. Nothing is imported here."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import zstandard

from aotkern.build.registry import SHIPPED, Source
from aotkern.bundle import LEVEL
from aotkern.errors import MissingToolError


def parse(texts: Sequence[str]) -> tuple[Source, ...]:
    """Sources by path or module name; without any, the shipped kernels.

    Raises:
        InputError: A path that does not exist.
        MissingToolError: The shipped kernels are not installed.
    """
    return tuple(Source.parse(text) for text in texts) or (shipped(),)


def shipped() -> Source:
    """The kernels that come with aotkern, by the folder in which they are installed."""
    spec = importlib.util.find_spec(SHIPPED)
    if spec is None or spec.origin is None:
        raise MissingToolError(SHIPPED, "to build the shipped kernels", "pip install aotkern, or name a kernel file")
    return Source(SHIPPED, Path(spec.origin).parent)


def label(sources: Sequence[Source]) -> str:
    """The name of bundles made from these sources."""
    name = sources[0].name.rpartition(".")[2]
    return "aotkern" if name == SHIPPED else name


def compressor() -> dict[str, str]:
    """What compresses bundles here, for their provenance."""
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    return {"compressor": f"zstd {version} level {LEVEL}"}
