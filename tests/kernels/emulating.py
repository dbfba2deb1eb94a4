"""A launcher that compiles declared variants and executes their machine code in the emulator.

It takes the call that the host code makes, looks for a declared variant whose constants and classes fit it, and refuses
the call when there is none: so a test that passes also shows that the declaration covers the call.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aotkern.build.compiler import Compiled, compile_variant
from aotkern.build.registry import LoadedKernel, Source, load
from aotkern.emulator import Buffer, WaveOrder, run
from aotkern.spec import Fixed, Runtime, VariantKey, expand
from aotkern.target import Target

_ELEMENTS = {
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
}


class EmulatorLauncher:
    """Launches declared variants of one target on CPU tensors.

    Args:
        arch: `gfx942` or `gfx950`.
        modules: Names of the modules that declare the kernels.
        small: Whether to use the variants for small storages; they differ in how they address memory.
        wave_order: How the waves of a workgroup take turns.
    """

    def __init__(self, arch: str, *modules: str, small: bool = True, wave_order: WaveOrder = "lockstep") -> None:
        self._wave_order = wave_order
        self._target = Target.parse(arch)
        self._small = small
        self._kernels = {loaded.declaration.name: loaded for loaded in load([Source(name) for name in modules])}
        self._compiled: dict[VariantKey, Compiled] = {}

    def __getitem__(self, kernel: str) -> Any:
        loaded = self._kernels[kernel]
        return _Grids(lambda grid, values: self._launch(loaded, grid, values), loaded)

    def _launch(self, loaded: LoadedKernel, grid: tuple[int, ...], values: Mapping[str, Any]) -> None:
        keys = expand(loaded.declaration, loaded.parameters, self._target)
        fitting = [key for key in keys if _fits(key, values, small=self._small)]
        if not fitting:
            raise LookupError(f"{loaded.declaration.name}: no declared variant for {values}")
        key = fitting[0]
        if key not in self._compiled:
            self._compiled[key] = compile_variant(loaded, key)
        compiled = self._compiled[key]
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        run(
            compiled.data,
            grid=(*grid, 1, 1)[:3],
            threads=64 * compiled.launch.num_warps,
            kernarg=_pack(compiled, key, values),
            dynamic_lds=compiled.launch.shared,
            buffers=_buffers(tensors),
            wave_order=self._wave_order,
        )


class _Grids:
    """What `launcher[kernel]` gives: indexed by a grid, then called."""

    def __init__(self, launch: Any, loaded: LoadedKernel) -> None:
        self._launch, self._loaded = launch, loaded

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        names = [parameter.name for parameter in self._loaded.parameters]

        def call(*arguments: object, **keywords: object) -> None:
            self._launch(grid, dict(zip(names, arguments, strict=False)) | keywords)

        return call


def _fits(key: VariantKey, values: Mapping[str, Any], *, small: bool) -> bool:
    options = {name: constant.value for name, constant in key.options}
    if any(values.get(name, value) != value for name, value in options.items()):
        return False
    for name, spec in key.arguments:
        if isinstance(spec, Fixed):
            if name in values and values[name] != spec.constant.value:
                return False
        elif isinstance(spec, Runtime):
            value = values[name]
            if isinstance(value, torch.Tensor):
                if spec.type != f"*{_ELEMENTS[value.dtype]}" or spec.small > small:
                    return False
                if spec.divisible and value.data_ptr() % 16:
                    return False
            elif spec.divisible and value % 16:
                return False
    return True


def _pack(compiled: Compiled, key: VariantKey, values: Mapping[str, Any]) -> bytes:
    """The kernel arguments where the code object's own metadata puts them."""
    packed = bytearray(max(argument.offset + argument.size for argument in compiled.code.arguments))
    runtime = [name for name, spec in key.arguments if isinstance(spec, Runtime)]
    for name, argument in zip(runtime, compiled.code.arguments, strict=False):
        value = values[name]
        if isinstance(value, torch.Tensor):
            struct.pack_into("<Q", packed, argument.offset, value.data_ptr())
        elif isinstance(value, float):
            struct.pack_into("<f", packed, argument.offset, value)
        else:
            packed[argument.offset : argument.offset + argument.size] = value.to_bytes(
                argument.size, "little", signed=True
            )
    return bytes(packed)


def _buffers(tensors: Mapping[str, torch.Tensor]) -> list[Buffer]:
    """The storages behind the tensors, each once: memory beyond them is out of bounds."""
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors.values() if tensor.numel()}
    buffers = []
    for address, tensor in storages.items():
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
        buffers.append(Buffer(address, np.asarray(flat)))
    return buffers
