"""One kernel of a loaded bundle: from `kernel[grid](...)` to the launch.

This is the whole way in Python: bind the arguments, read them, choose a variant, find its function, pack, launch. The C
extension does the same for calls that need nothing unusual, and comes here for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from aotkern import grid as grids
from aotkern.abi import Layout
from aotkern.arguments import Pointer, Value, bind, common_device, read
from aotkern.dispatch import Miss, Table, Variant, choose, with_denied
from aotkern.drivers import Device, Driver, Function, Launch
from aotkern.errors import InputError
from aotkern.loader import streams
from aotkern.loader.modules import Modules
from aotkern.loader.observe import Counters, Hooks, LaunchEvent
from aotkern.loader.scratch import scratch
from aotkern.manifest import KernelEntry, Manifest, VariantEntry
from aotkern.spec import Constant

STREAM = "stream"
"""The keyword that names a stream, for kernels that have no parameter of that name."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A variant on a device, with everything that a launch of it needs."""

    variant: VariantEntry
    function: Function
    layout: Layout
    device: Device


class Native(Protocol):
    """The same kernel in the C extension."""

    def bind(self, grid: object) -> Callable[..., Any]:
        """What launches on this grid."""

    def counted(self) -> tuple[tuple[int, ...], int]:
        """Launches of each variant in the table's order, and calls with an empty grid."""

    def offer(self, position: int, ready: Ready) -> None:
        """Tell it of a variant that is loaded on a device."""


class Owner(Protocol):
    """What a kernel needs of its bundle."""

    @property
    def where(self) -> str:
        """Where the bundle came from."""

    @property
    def manifest(self) -> Manifest:
        """What is in it."""

    driver: Driver
    modules: Modules
    hooks: Hooks
    tally: Counters

    def out_of_service(self, kernel: str) -> tuple[tuple[VariantEntry, str], ...]:
        """The variants of a kernel that are denied, each with the entry that denies it."""

    def device_for(self, index: int | None, where: str) -> Device:
        """The device of a call whose tensors are on device `index`, or on none in particular."""

    def missed(self, miss: Miss, grid: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What becomes of a call that no variant serves."""

    def native(self, kernel: Kernel) -> Native | None:
        """The kernel's side in the C extension, if it has one."""


class Kernel:
    """A kernel that launches from prebuilt variants; `kernel[grid](*args, **kwargs)` reads like Triton's own call.

    Keywords that name no parameter are compile options (`num_warps=8`), which the variant must have, or `stream=`.
    """

    def __init__(self, bundle: Owner, entry: KernelEntry, variants: Sequence[VariantEntry]) -> None:
        self._bundle, self._entry, self._variants = bundle, entry, tuple(variants)
        self._ready: dict[tuple[int, int], Ready] = {}
        self._names = tuple(parameter.name for parameter in entry.parameters)
        self._takes_stream = STREAM not in self._names
        self._native: Native | None = bundle.native(self)
        self._bind = self._native.bind if self._native is not None else self._in_python

    @property
    def name(self) -> str:
        """Its name in the bundle."""
        return self._entry.name

    @property
    def entry(self) -> KernelEntry:
        """Its entry in the manifest."""
        return self._entry

    @cached_property
    def table(self) -> Table:
        """Its variants, arranged for choosing."""
        self._bundle.manifest.check_variants(self._variants, f"{self._bundle.where}: manifest")
        options = self._bundle.manifest.options
        variants = [Variant(entry.key, options[entry.options]) for entry in self._variants]
        return Table.make(self.name, self._entry.parameters, variants)

    @property
    def variants(self) -> tuple[VariantEntry, ...]:
        """Its variants, in the order of the manifest."""
        return self._variants

    def only(self, text: str) -> Kernel:
        """This kernel with one of its variants alone, by the text of its key: calls that it does not serve are misses.

        Raises:
            InputError: The kernel has no such variant.
        """
        for variant in self._variants:
            if variant.text == text:
                return Kernel(self._bundle, self._entry, (variant,))
        raise InputError.one(f"kernel {self.name}", "the key of one of its variants", repr(text)[:400])

    def __getitem__(self, grid: object) -> Callable[..., Any]:
        """What launches on this grid: a tuple, list, int, or a callable that takes the arguments by name."""
        return self._bind(grid)

    def _in_python(self, grid: object) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.launch(grid, args, kwargs)

    def counted(self) -> tuple[dict[str, int], int]:
        """Launches of each variant, and empty calls, that the C extension counted."""
        if self._native is None:
            return {}, 0
        launches, empty = self._native.counted()
        texts = (self._variants[position].text for position in self.table.positions)
        return {text: count for text, count in zip(texts, launches, strict=True) if count}, empty

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self._bundle.where}, {len(self._variants)} variants>"

    def launch(self, grid: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch once.

        Raises:
            InputError: The arguments are not those of the kernel, or the grid is not one that the device takes.
            MissError: No variant serves the call, and the bundle was loaded with `on_miss="error"`.
            CaptureError: The variant is not loaded, and the stream is being captured.
            DriverError: The driver refuses the launch.
        """
        rest = dict(kwargs)
        stream = rest.pop(STREAM, None) if self._takes_stream else None
        raw, rest = bind(self.name, self._entry.parameters, args, rest)
        if callable(grid):
            grid = grid(dict(zip(self._names, raw, strict=True)))
        shape = grids.normalise(grid, self.name)
        if not grids.programs(shape):
            self._bundle.tally.add(self._bundle.tally.empty, self.name)
            return None
        parameters = zip(self._entry.parameters, raw, strict=True)
        values = tuple(read(item, value, f"{self.name}: {item.name}") for item, value in parameters)
        options = {name: Constant.of(value, f"{self.name}: {name}") for name, value in rest.items()}
        outcome = choose(self.table, values, options)
        if isinstance(outcome, Miss):
            outcome = self._denied(outcome, values, options)
            return self._bundle.missed(outcome, grid, args, kwargs)
        device = self._device(values)
        handle = streams.current(raw, device.index) if stream is None else streams.handle(stream, self.name)
        ready = self.ready(self.table.positions[outcome.index], device, handle)
        self._put(ready, shape, handle, values)
        return None

    def _denied(self, miss: Miss, values: Sequence[Value], options: Mapping[str, Constant]) -> Miss:
        """The miss, which names the entry where a variant that is out of service would have served the call."""
        rows = self._bundle.out_of_service(self.name)
        if not rows:
            return miss
        manifest = self._bundle.manifest
        manifest.check_variants([entry for entry, _ in rows], f"{self._bundle.where}: manifest")
        variants = [Variant(entry.key, manifest.options[entry.options]) for entry, _ in rows]
        return with_denied(miss, self._entry.parameters, variants, [word for _, word in rows], values, options)

    def _device(self, values: Sequence[Value]) -> Device:
        pointers = [leaf for value in values for leaf in _pointers(value)]
        if self._bundle.driver.reads_host:
            pointers = [pointer for pointer in pointers if not pointer.host]
        return self._bundle.device_for(common_device(pointers, self.name), self.name)

    def ready(self, position: int, device: Device, stream: int) -> Ready:
        """A variant on a device, loaded if it was not; `position` is its place among `variants`."""
        found = self._ready.get((position, device.index))
        if found is None:
            variant = self._variants[position]
            function = self._bundle.modules.ready(variant, device.index, stream)
            layout = Layout.of(variant.key, self._bundle.manifest.object(variant.object).arguments)
            found = self._ready[position, device.index] = Ready(variant, function, layout, device)
            if self._native is not None:
                self._native.offer(position, found)
        return found

    def _put(self, ready: Ready, shape: grids.Grid, stream: int, values: Sequence[Value]) -> None:
        launch, device = ready.variant.launch, ready.device
        threads = launch.num_warps * self._bundle.manifest.target.limits.wave
        whole = (shape[0] * launch.num_ctas, shape[1], shape[2])
        grids.check(whole, device.max_grid, threads, device.max_threads_x, self.name)
        workgroups = grids.programs(whole)
        parts = (
            (launch.global_scratch * workgroups, launch.global_scratch_align),
            (launch.profile_scratch * workgroups, launch.profile_scratch_align),
        )
        with scratch(self._bundle.driver, device.index, stream, parts) as addresses:
            request = Launch(
                function=ready.function,
                grid=shape,
                threads=threads,
                shared=launch.shared,
                stream=stream,
                arguments=ready.layout.pack(values, addresses),
                offsets=(*(slot.offset for slot in ready.layout.slots), *ready.layout.scratch),
                cluster=launch.num_ctas,
                cooperative=launch.cooperative,
                overlap=launch.pdl,
                memory=_memory(values) if self._bundle.driver.reads_host else (),
            )
            self._observed(request, ready.variant)

    def _observed(self, request: Launch, variant: VariantEntry) -> None:
        hooks, tally = self._bundle.hooks, self._bundle.tally
        event = LaunchEvent(self.name, variant.text, request.function.device, request.stream, request.grid)
        for hook in tuple(hooks.enter):
            hook(event)
        self._bundle.driver.launch(request)
        tally.add(tally.dispatched, variant.text)
        for hook in tuple(hooks.exit):
            hook(event)


def _memory(values: Sequence[Value]) -> tuple[tuple[int, int], ...]:
    """The memory behind all pointers, each piece once: what a launch may touch."""
    pieces = {pointer.memory for value in values for pointer in _pointers(value)}
    return tuple(sorted(piece for piece in pieces if piece[1]))


def _pointers(value: Value) -> list[Pointer]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _pointers(item)]
    return [value] if isinstance(value, Pointer) else []
