"""A launcher that launches nothing: it asks which declared variant a call would get."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

from aotkern.arguments import bind, read
from aotkern.build import registry
from aotkern.dispatch import Choice, Table, Variant, choose
from aotkern.spec import Constant, VariantKey, expand
from aotkern.target import Target


@cache
def loaded(module: str) -> tuple[registry.LoadedKernel, ...]:
    """The kernels that a module declares."""
    return registry.load([registry.Source(module)])


@cache
def _table(module: str, kernel: str, target: str) -> tuple[Table, tuple[VariantKey, ...], Any]:
    found = next(item for item in loaded(module) if item.declaration.name == kernel)
    keys = expand(found.declaration, found.parameters, Target.parse(target))
    table = Table.make(kernel, found.parameters, [Variant(key, dict(key.options)) for key in keys])
    return table, keys, found.parameters


class DeclaredLauncher:
    """`launcher[kernel][grid](...)` records the variant that the call gets, or fails with the reasons for a miss."""

    def __init__(self, target: str, *modules: ModuleType) -> None:
        self._target = target
        self._modules = {item.declaration.name: m.__name__ for m in modules for item in loaded(m.__name__)}
        self.chosen: list[VariantKey] = []

    def __getitem__(self, kernel: str) -> Any:
        table, keys, parameters = _table(self._modules[kernel], kernel, self._target)

        def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            raw, rest = bind(kernel, parameters, args, kwargs)
            values = [read(item, value, item.name) for item, value in zip(parameters, raw, strict=True)]
            outcome = choose(table, values, {name: Constant.of(value) for name, value in rest.items()})
            assert isinstance(outcome, Choice), str(outcome)
            self.chosen.append(keys[table.positions[outcome.index]])

        class Grid:
            def __getitem__(self, grid: object) -> Any:
                return lambda *args, **kwargs: call(args, kwargs)

        return Grid()
