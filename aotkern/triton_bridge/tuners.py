"""What an autotuner is, and what it chose, in texts that a trace can hold; nothing here raises for a strange value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.spec import Constant

_PLACES = ("ir_override",)
"""Parts of a configuration that name files of this machine."""


def tuned_function(tuner: Any) -> Any:
    """The JIT function under an autotuner and whatever else is wrapped around it."""
    function = tuner.fn
    while not hasattr(function, "get_capture_scope"):
        function = function.fn
    return function


def current_target() -> Any:
    """Triton's target object for the current device."""
    from triton.runtime.driver import driver  # noqa: PLC0415 - the caller's own Triton

    return driver.active.get_current_target()


def config_texts(config: Any) -> tuple[tuple[str, str], ...]:
    """An autotuner's configuration: parameters and options by canonical texts, sorted.

    A value that is no constant is written as `?` and its type; see `kept`.
    """
    return tuple(sorted((str(name), _text(name, value)) for name, value in config.all_kwargs().items()))


def kept(texts: tuple[tuple[str, str], ...]) -> bool:
    """Whether every value of a configuration is a constant, so that the texts say which configuration it is."""
    return not any(text.startswith("?") for _, text in texts)


def _text(name: str, value: Any) -> str:
    if name in _PLACES:
        return "?path"
    try:
        return Constant.of(value, name).text
    except Exception:
        return f"?{type(value).__qualname__}"


def key_texts(key: tuple[Any, ...], where: str) -> tuple[str, ...]:
    """A tuning key by canonical texts.

    Raises:
        InputError: A part of it is no constant (a tensor, an object).
    """
    return tuple(Constant.of(part, f"{where}: tuning key").text for part in key)


def tuning_key(tuner: Any, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key under which an autotuner keeps its choice, as its `run` makes it."""
    given = {name: value for name, value in {**(tuner.nargs or {}), **kwargs}.items() if name in tuner.arg_names}
    values = [given[name] for name in tuner.keys if name in given]
    return (*values, *(str(value.dtype) for value in given.values() if hasattr(value, "dtype")))


def identity(tuner: Any) -> str:
    """A digest of what an autotuner is: its configurations, the names in its key, and the functions that prune."""
    configs = [[list(pair) for pair in config_texts(config)] for config in tuner.configs]
    pruning = [getattr(tuner, name, None) for name in ("early_config_prune", "perf_model")]
    names = [str(getattr(function, "__qualname__", type(function).__qualname__)) for function in pruning]
    rows = [[str(name) for name in tuner.keys], configs, names, str(getattr(tuner, "configs_top_k", ""))]
    return Digest.of(dumps(rows).encode()).hex[:16]
