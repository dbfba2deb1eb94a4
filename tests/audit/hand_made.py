"""Manifests and bundles made by hand, for tests that need facts and not machine code, and one small kernel file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aotkern.codeobject.facts import Argument, CodeObject, Resources, Role, Section
from aotkern.digest import Digest
from aotkern.manifest import KernelEntry, Launch, Manifest, ObjectEntry, VariantEntry
from aotkern.spec import Constant, Parameter
from aotkern.target import Target

GFX942, GFX950, SM90 = (Target.parse(text) for text in ("gfx942", "gfx950", "cuda:90"))

PLAIN = Resources(
    vgprs=24, agprs=0, sgprs=20, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=0, wave=64, max_threads=256
)
"""The resources of a variant for which a test asks nothing else."""


def manifest(
    target: Target, kernels: Mapping[str, Resources], *, shared: int = 0, triton: str = "3.9.0", source: str = "source"
) -> Manifest:
    """One variant of each kernel, with these resources and this much dynamic LDS."""
    objects: dict[Digest, ObjectEntry] = {}
    variants = []
    for name, resources in kernels.items():
        code = _code(target, name, resources)
        digest = Digest.of(f"{target} {name} {resources}".encode())
        objects[digest] = ObjectEntry(digest, 4096, code.to_json())
        key = f"{name}[{target}](n:i32){{num_warps=4}}"
        entry = VariantEntry(key, Digest.of(key.encode()), digest, Launch(shared, 4), "")
        variants.append((entry, {"num_warps": Constant("4")}))
    entries = [KernelEntry(name, (Parameter("n"),), Digest.of(source.encode())) for name in kernels]
    return Manifest.make(target, {"triton": triton}, {}, entries, objects, variants)


def _code(target: Target, name: str, resources: Resources) -> CodeObject:
    text = Section(".text", Role.CODE, 256, Digest.of(f"{name} {resources}".encode()))
    return CodeObject(target, name, 0x54C, 3, (text,), resources, (Argument(0, 4, "by_value"),), 24)


def more(**numbers: int) -> Resources:
    """`PLAIN` with some other numbers."""
    return replace(PLAIN, **numbers)


def written(path: Path, value: Manifest) -> Path:
    """The manifest as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value.to_bytes())
    return path
