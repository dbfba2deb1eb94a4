"""Triton's `CompiledKernel`, made from a variant of a bundle instead of files in Triton's cache.

Triton's class reads a folder. The subclass here sets the same attributes from memory, and leaves everything else to
Triton: loading, launching, launch metadata and hooks. Which attributes and which metadata these are depends on Triton's
version, so that only those in `aotkern.tritons.TESTED` are served.

A variant may assume less than the call's specialisation (an integer that is 1 may be a parameter of the binary). The
launcher packs what the source object's signature says, so the kernel gets a copy of it with the variant's signature.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping
from typing import Any

from aotkern.manifest import Launch
from aotkern.spec import ArgumentSpec, Fixed, Group, Runtime
from aotkern.spec.key import flatten
from aotkern.triton_bridge.shelf import Hit

_TENSOR_MEMORY_SINCE = 100
"""Compute capability from which on kernels may use tensor memory, whose size a manifest does not hold."""


@functools.cache
def kernel_class() -> type:
    """The subclass of the running Triton's `CompiledKernel`."""
    from triton.compiler.compiler import AsmDict, CompiledKernel, make_backend  # noqa: PLC0415 - the program's Triton

    class PrebuiltKernel(CompiledKernel):  # type: ignore[misc]
        """A compiled kernel whose code was built ahead of time."""

        def __init__(self, source: Any, metadata: Any, code: bytes) -> None:
            backend = make_backend(metadata.target)
            self.metadata = metadata
            self.packed_metadata = backend.pack_metadata(metadata)
            self.src, self.hash, self.name = source, metadata.hash, metadata.name
            self.asm = AsmDict({backend.binary_ext: code})
            self.metadata_group: dict[str, str] = {}
            self.kernel = code
            self.module = self.function = self._run = None
            self._module_pid: int | None = None

    return PrebuiltKernel


def make(hit: Hit, source: Any, target: Any, options: Mapping[str, Any]) -> Any:
    """A compiled kernel of the chosen variant.

    Args:
        hit: The variant.
        source: Triton's source object of the request.
        target: Triton's target object.
        options: The options in effect, as Triton holds them.
    """
    bundle, variant = hit.kernel.bundle, hit.variant
    arguments = variant.key.arguments
    leaves = [(path, leaf) for at, (_, spec) in enumerate(arguments) for path, leaf in flatten(spec, (at,))]
    fixed = {path for path, leaf in leaves if isinstance(leaf, Fixed)}
    served = copy.copy(source)
    served.signature = {name: _signature(spec) for name, spec in arguments}
    served.constants = {path: value for path, value in source.constants.items() if path in fixed}
    symbol = bundle.manifest.object(variant.object).code.symbol
    metadata = _metadata(symbol, variant.content.hex, target, options, variant.launch)
    return kernel_class()(served, metadata, bundle.object(variant.object))


def _signature(spec: ArgumentSpec) -> Any:
    if isinstance(spec, Group):
        return tuple(_signature(item) for item in spec.items)
    return spec.type if isinstance(spec, Runtime) else "constexpr"


def _metadata(symbol: str, content: str, target: Any, options: Mapping[str, Any], launch: Launch) -> Any:
    """The metadata as Triton reads it back from its JSON file."""
    from collections import namedtuple  # noqa: PLC0415 - its fields are known at run time only

    import triton  # noqa: PLC0415 - the program's own
    from triton._C.libtriton import get_cache_invalidating_env_vars  # noqa: PLC0415

    found = {
        **options,
        **get_cache_invalidating_env_vars(),
        "hash": content,
        "triton_version": triton.__version__,
        "name": symbol,
        "shared": launch.shared,
        "num_warps": launch.num_warps,
        "num_ctas": launch.num_ctas,
        "launch_cooperative_grid": launch.cooperative,
        "global_scratch_size": launch.global_scratch,
        "global_scratch_align": launch.global_scratch_align,
        "profile_scratch_size": launch.profile_scratch,
        "profile_scratch_align": launch.profile_scratch_align,
        "tensordesc_meta": [],
        "warp_size": target.warp_size,
    }
    if target.backend == "cuda":
        found["launch_pdl"] = launch.pdl
        found["tmem_size"] = 0 if target.arch < _TENSOR_MEMORY_SINCE else None
    plain = {**json.loads(json.dumps(found, default=vars)), "target": target}
    return namedtuple("KernelMetadata", sorted(plain))(**plain)
