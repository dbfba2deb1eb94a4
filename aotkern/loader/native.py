"""The C extension's side of a kernel: what it is told, and when it may launch by itself.

`_fastpath` repeats the way of `kernel.py` in C for the calls that need nothing unusual, and hands every other call back
to it. It holds no rule of its own: the numbers below name in C what `dispatch` and `abi` say in Python.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from aotkern.arguments import ELEMENT_BY_DLPACK, exchange_capsule
from aotkern.dispatch import INTEGER_RANGES, Table, Test, one_bit
from aotkern.drivers import Driver
from aotkern.loader.kernel import Kernel, Owner, Ready
from aotkern.loader.observe import LaunchHooks
from aotkern.settings import Settings
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Parameter
from aotkern.target import Backend

# The enums of _fastpath.c.
_CONSTANT, _POINTER, _INTEGER, _FLOAT, _BOOL = range(5)
_DIVISIBLE, _SMALL, _ANNOTATED = 1, 2, 4
_WRITE = {"fp16": 1, "bf16": 2, "fp32": 3, "fp64": 4}
_BITS = 0
_DEVICE_TYPE = {Backend.CUDA: 2, Backend.HIP: 10}
"""DLPack's number for the memory of each family."""
_LARGEST_BUFFER = 4096
_ELEMENT = {name: code << 8 | bits for (code, bits), name in ELEMENT_BY_DLPACK.items()}


class Native:
    """A kernel in the C extension.

    Args:
        kernel: The same kernel in Python, which takes what the extension declines.
        bundle: Its bundle.
        extension: The extension module.
    """

    def __init__(self, kernel: Kernel, bundle: Owner, extension: Any) -> None:
        self._driver = bundle.driver
        self._place = {position: index for index, position in enumerate(kernel.table.positions)}
        self._ready: dict[tuple[int, int], Ready] = {}
        parameters, options, families = describe(kernel.table)
        device_type = _DEVICE_TYPE[bundle.manifest.target.backend]
        self._kernel = extension.Kernel(
            kernel.launch,
            self._fail,
            exchange_capsule,
            bundle.hooks.enter,
            bundle.hooks.exit,
            device_type,
            parameters,
            options,
            families,
        )
        bundle.hooks.tell(self)

    @property
    def bind(self) -> Callable[[object], Callable[..., Any]]:
        """What launches on a grid: the extension's own method, so that Python is not asked again."""
        return self._kernel.bind  # type: ignore[no-any-return]

    def observe(self, enter: LaunchHooks, leave: LaunchHooks) -> None:
        """Leave launches to Python while one of these lists holds a hook."""
        self._kernel.observe(enter, leave)

    def counted(self) -> tuple[tuple[int, ...], int]:
        """Launches of each variant in the table's order, and calls with an empty grid."""
        launches, empty = self._kernel.counted()
        return launches, empty

    def offer(self, position: int, ready: Ready) -> None:
        """Tell the extension of a variant that is loaded on a device, if it can launch it by itself."""
        launch, layout, device = ready.variant.launch, ready.layout, ready.device
        entry = self._driver.entry(device.index)
        plain = launch.num_ctas == 1 and not launch.cooperative and not launch.pdl
        if entry is None or not plain or launch.global_scratch or launch.profile_scratch:
            return
        if layout.size > _LARGEST_BUFFER:
            return
        threads = launch.num_warps * ready.variant.key.target.limits.wave
        most = (min(device.max_grid[0], device.max_threads_x // threads), *device.max_grid[1:])
        slots = tuple((slot.path[0], slot.offset, slot.size, _WRITE.get(slot.type, _BITS)) for slot in layout.slots)
        index = self._place[position]
        self._ready[index, device.index] = ready
        self._kernel.offer(
            index,
            device.index,
            ready.function.handle,
            threads,
            launch.shared,
            most,
            slots,
            layout.size,
            entry.launch,
            entry.current,
            entry.expected,
            entry.end,
        )

    def _fail(self, code: int, index: int, device: int) -> NoReturn:
        raise self._driver.launch_error(code, self._ready[index, device].function)


def attach(kernel: Kernel, bundle: Owner) -> Native | None:
    """The extension's side of a kernel; None where it is not built, not wanted, or has nothing to call."""
    extension = _extension() if _callable(bundle.driver) else None
    if extension is None or not kernel.table.variants or not _describable(kernel.table):
        return None
    return Native(kernel, bundle, extension)


def is_built() -> bool:
    """Whether the extension is there and wanted."""
    return _extension() is not None


def _callable(driver: Driver) -> bool:
    return driver.backend is not None and not driver.reads_host


@functools.cache
def _extension() -> Any:
    if Settings.read().pure_python:
        return None
    try:
        return importlib.import_module("aotkern._fastpath")
    except ImportError:
        return None


def _describable(table: Table) -> bool:
    """Tuples, and integer constants of more than 64 bits, stay in Python."""
    specs = [test.spec for tests in table.tests for test in tests]
    wide = [spec for spec in specs if isinstance(spec, Fixed) and not _fits(spec.constant.value)]
    return not wide and not any(isinstance(spec, Group) for spec in specs)


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def describe(table: Table) -> tuple[Any, Any, Any]:
    """A table as `_fastpath.Kernel` takes it: parameters, options and families."""
    size = 8 * -(-len(table.variants) // 64)

    def mask(variants: int) -> bytes:
        return variants.to_bytes(size, "little")

    def row(test: Test, parameter: Parameter) -> tuple[Any, ...]:
        return *_assumption(test.spec, annotated=bool(parameter.type)), mask(test.variants)

    parameters = tuple(
        (
            sys.intern(parameter.name),  # as the names of keywords are, which are then told by their addresses
            parameter.default is not None,
            Constant(parameter.default).value if parameter.default is not None else None,
            tuple(row(test, parameter) for test in tests),
        )
        for parameter, tests in zip(table.parameters, table.tests, strict=True)
    )
    options = tuple(
        (
            sys.intern(name),
            False,
            None,
            tuple((*_assumption(Fixed(value), annotated=False), mask(bits)) for value, bits in column),
        )
        for name, column in table.options.items()
    )
    return parameters, options, tuple(mask(bits) for bits in table.families)


def _assumption(spec: ArgumentSpec, *, annotated: bool) -> tuple[int, int, int, int, int, object]:
    """(kind, flags, element, low, high, constant) of one assumption."""
    if isinstance(spec, Fixed):
        return _CONSTANT, 0, 0, 0, 0, spec.constant.value
    if isinstance(spec, Group):
        raise TypeError("tuples stay in Python")
    flags = _DIVISIBLE * spec.divisible | _SMALL * spec.small | _ANNOTATED * annotated
    if spec.is_pointer:
        return _POINTER, flags, _ELEMENT.get(one_bit(spec.element), 0), 0, 0, None
    if spec.type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[spec.type]
        return _INTEGER, flags, 0, low, high, None
    return (_BOOL if spec.type == "u1" else _FLOAT), flags, 0, 0, 0, None
