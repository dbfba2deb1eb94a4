"""Launching Triton kernels in the emulator: compiled for an AMD target as Triton itself would for these arguments."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aotkern.emulator import Buffer, Statistics, run

_CODES = {"i1": "b", "u1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u64": "Q", "fp32": "f", "fp64": "d"}


class EmulatorLauncher:
    """`launcher[kernel][grid](*args, **constants)` on CPU tensors, executed by the emulator.

    Args:
        arch: `gfx942` or `gfx950`.
        kernels: JIT functions by name.
        how: Further arguments of `run`, such as the order of waves.
    """

    def __init__(self, arch: str, kernels: Mapping[str, Any], **how: Any) -> None:
        self.arch, self.how = arch, how
        self._kernels = kernels
        self._compiled: dict[Any, Any] = {}
        self.statistics: list[Statistics] = []
        self.launched: list[tuple[bytes, dict[str, Any]]] = []

    @classmethod
    def of(cls, arch: str, *modules: Any, **how: Any) -> EmulatorLauncher:
        """A launcher for every JIT function of some modules."""
        from triton.runtime.jit import JITFunction

        found = {n: v for module in modules for n, v in vars(module).items() if isinstance(v, JITFunction)}
        return cls(arch, found, **how)

    def __getitem__(self, kernel: str) -> Any:
        function = self._kernels[kernel]

        class Bound:
            def __getitem__(_, grid: tuple[int, ...]) -> Any:
                return lambda *args, **constants: self.launch(function, grid, args, constants)

        return Bound()

    def launch(
        self, function: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any]
    ) -> Statistics:
        """Compile for these arguments, pack them, run."""
        compiled, passed = self.compiled(function, args, constants)
        wide = (*grid, 1, 1)[:3]
        how = {
            "grid": wide,
            "threads": 64 * compiled.metadata.num_warps,
            "kernarg": packed(passed),
            "dynamic_lds": compiled.metadata.shared,
        }
        self.launched.append((compiled.asm["hsaco"], how))
        statistics = run(compiled.asm["hsaco"], **how, buffers=buffers(passed), **self.how)
        self.statistics.append(statistics)
        return statistics

    def compiled(self, function: Any, args: tuple[Any, ...], constants: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The compiled kernel, and the types and values that remain parameters."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from triton.compiler.compiler import make_backend
        from triton.runtime.jit import create_function_from_signature

        target = GPUTarget("hip", self.arch, 64)
        backend = make_backend(target)
        bound, specialization, options = create_function_from_signature(function.signature, function.params, backend)(
            *args, **constants
        )
        options, signature, constexprs, attributes = function._pack_args(
            backend, constants, bound, specialization, options
        )
        key = (id(function), str(specialization), str(constexprs), str(options))
        if key not in self._compiled:
            source = ASTSource(function, signature, constexprs, attributes)
            self._compiled[key] = triton.compile(source, target=target, options=options.__dict__)
        passed = [(kind, bound[name]) for name, kind in signature.items() if kind != "constexpr"]
        return self._compiled[key], passed


def packed(passed: list[Any]) -> bytes:
    """Kernel arguments in order, each aligned to its own size, and Triton's two scratch pointers, null."""
    raw = b""
    for kind, value in passed:
        if kind.startswith("*"):
            piece = struct.pack("<Q", 0 if value is None else value.data_ptr())
        else:
            piece = struct.pack("<" + _CODES[kind], value)
        raw += b"\0" * (-len(raw) % len(piece)) + piece
    return raw + b"\0" * (-len(raw) % 8) + bytes(16)


def buffers(passed: list[Any]) -> list[Buffer]:
    """The storages of all tensors, each once."""
    found = {}
    for kind, value in passed:
        if kind.startswith("*") and value is not None:
            storage = value.untyped_storage()
            if storage.nbytes():
                flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))
                found[storage.data_ptr()] = Buffer(storage.data_ptr(), flat.numpy())
    return list(found.values())


def bits(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's bytes, for comparisons bit by bit."""
    return tensor.contiguous().view(torch.uint8).numpy().copy()
