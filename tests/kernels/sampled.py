"""Bundles of some of the family's variants, compiled in this process: for audits that need real machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aotkern import codeobject
from aotkern.build.compiler import Compiled, compile_variant, effective_options
from aotkern.build.registry import LoadedKernel, Source, load
from aotkern.bundle import write
from aotkern.digest import Digest
from aotkern.manifest import KernelEntry, Manifest, ObjectEntry, VariantEntry
from aotkern.spec import Constant, Fixed, VariantKey, expand
from aotkern.target import Target
from kernels.launchers import KERNEL_MODULES


@cache
def family() -> Mapping[str, LoadedKernel]:
    """The declared kernels by name."""
    sources = [Source(f"kernels.{name}") for name in KERNEL_MODULES]
    return {loaded.declaration.name: loaded for loaded in load(sources)}


@cache
def keys(kernel: str, arch: str) -> tuple[VariantKey, ...]:
    """The declared variants of a kernel for a target, none where it is not declared for it."""
    loaded = family()[kernel]
    return tuple(expand(loaded.declaration, loaded.parameters, Target.parse(arch)))


def pick(kernel: str, arch: str, **constants: Any) -> VariantKey:
    """The first declared variant with these constants."""
    return next(key for key in keys(kernel, arch) if fixed(key).items() >= constants.items())


def fixed(key: VariantKey) -> dict[str, Any]:
    """The constants of a key."""
    return {name: spec.constant.value for name, spec in key.arguments if isinstance(spec, Fixed)}


def write_bundle(path: Path, chosen: Sequence[VariantKey], images: Mapping[VariantKey, bytes] | None = None) -> Path:
    """A bundle of these variants, all of one target; `images` replaces the machine code of some of them."""
    objects: dict[Digest, ObjectEntry] = {}
    data: dict[Digest, bytes] = {}
    variants: list[tuple[VariantEntry, Mapping[str, Constant]]] = []
    for key in chosen:
        compiled = compiled_variant(key)
        image = (images or {}).get(key, compiled.data)
        digest = Digest.of(image)
        objects[digest] = ObjectEntry(digest, len(image), codeobject.read(image, str(key)).to_json())
        data[digest] = image
        entry = VariantEntry(str(key), Digest.of(str(key).encode()), digest, compiled.launch, "")
        variants.append((entry, effective_options(key)))
    loaded = [family()[name] for name in sorted({key.kernel for key in chosen})]
    entries = [KernelEntry(item.declaration.name, item.parameters, item.source) for item in loaded]
    write(path, Manifest.make(chosen[0].target, {"triton": "test"}, {}, entries, objects, variants), data, {})
    return path


@cache
def compiled_variant(key: VariantKey) -> Compiled:
    """The variant, compiled once in this process."""
    return compile_variant(family()[key.kernel], key)
