"""Serving prebuilt binaries to an unchanged Triton program: a hit enters no compiler, a miss does what was asked.

`Server` decides; `aotkern.triton_bridge.installed` puts it on a process.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from aotkern import influences
from aotkern.arguments import read as read_argument
from aotkern.build.constants import installed, rebuilt
from aotkern.errors import AotkernError, MissError, ProblemsError
from aotkern.spec import Fixed, VariantKey
from aotkern.spec.key import flatten
from aotkern.triton_bridge import describe, prebuilt, specialised
from aotkern.triton_bridge.shelf import Hit, Prebuilt, Refusal, Shelf
from aotkern.triton_bridge.sink import ForkLock, Sink
from aotkern.triton_bridge.surroundings import say
from aotkern.triton_bridge.tuners import (
    config_texts,
    current_target,
    identity,
    key_texts,
    tuned_function,
    tuning_key,
)

OnMiss = Literal["error", "warn", "jit"]
ON_MISS: tuple[OnMiss, ...] = get_args(OnMiss)
Untuned = Literal["miss", "usual"]
UNTUNED: tuple[Untuned, ...] = get_args(Untuned)

_log = logging.getLogger("aotkern")


@dataclass
class Counts:
    """What a process asked for and what it got, counted by kernel.

    Attributes:
        hits: Specialisations that a prebuilt binary serves.
        misses: Specialisations that none serves.
        tuned: Tuning keys whose configuration was known.
        untuned: Tuning keys that were in no table.
        reasons: Each miss in words, the first of each wording.
    """

    hits: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    tuned: Counter[str] = field(default_factory=Counter)
    untuned: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, None] = field(default_factory=dict)


class Server:
    """Answers Triton's requests from a shelf.

    Args:
        shelf: The bundles.
        on_miss: "error" raises `MissError` before anything is compiled, "warn" says it on standard error and lets
            Triton compile, "jit" lets it compile in silence. Every miss is counted.
        untuned: What an autotuner does with a tuning key that is in no table: "miss" treats it as a miss (and then
            benchmarks, where misses may compile), "usual" takes the configuration that it chose most often.
        sink: Takes an event for each hit and miss; None for no events.
    """

    def __init__(self, shelf: Shelf, on_miss: OnMiss, untuned: Untuned, sink: Sink | None) -> None:
        self.shelf, self.on_miss, self.untuned = shelf, on_miss, untuned
        self.counts = Counts()
        self._sink = sink
        self._lock = ForkLock()
        self._made: dict[tuple[Any, ...], Any] = {}
        self._chosen = threading.local()

    def around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`triton.compile`, with prebuilt binaries before it."""

        def compile(src: Any, target: Any = None, options: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            found = self._answer(src, target, options)
            if not isinstance(found, Refusal):
                return found
            self._missed(found)
            return original(src, target=target, options=options, **kwargs)

        return compile

    def _answer(self, source: Any, target: Any, options: Mapping[str, Any] | None) -> Any:
        try:
            asked = specialised.read(source, target, options)
        except ProblemsError as error:
            return Refusal(specialised.name_of(source), f"cannot be prebuilt: {error}")
        kernels = self.shelf.kernels(asked.name, asked.source, asked.target)
        if isinstance(kernels, Refusal):
            return kernels
        values = _values(kernels[0], describe.place().bound)
        found = self.shelf.choose(kernels, asked.arguments, asked.options, asked.settings, values)
        if isinstance(found, Refusal):
            return found
        # Triton's compile asks for this key, and a function that has none does not notice globals that change later.
        source.fn.cache_key  # noqa: B018
        made = self._kernel(found, source, target, asked.raw)
        self._count(self.counts.hits, asked.name, {"event": "hit", "variant": found.variant.text})
        return made

    def _kernel(self, hit: Hit, source: Any, target: Any, options: Mapping[str, Any]) -> Any:
        """One compiled kernel for each variant, function and device, however many specialisations it serves."""
        from triton.runtime.driver import driver  # noqa: PLC0415 - the program's own Triton

        device = driver.active.get_current_device()
        target = driver.active.get_current_target() if target is None else target
        key = (device, hit.kernel.entry.source, hit.variant.text, source.fn)
        with self._lock.held():
            if key not in self._made:
                self._made[key] = prebuilt.make(hit, source, target, options)
            return self._made[key]

    def preload(self, function: Any) -> int:
        """Load every variant of a kernel onto the current device; returns how many these are.

        Args:
            function: The kernel, with or without autotuner and heuristics around it.

        Raises:
            MissError: No bundle has this kernel for the current device.
        """
        from triton.compiler import ASTSource  # noqa: PLC0415 - the program's own Triton
        from triton.compiler.compiler import make_backend  # noqa: PLC0415

        inner = function if hasattr(function, "get_capture_scope") else tuned_function(function)
        gpu = current_target()
        name = f"{specialised.module_of(inner)}.{inner.__qualname__}"
        kernels = self.shelf.kernels(name, specialised.digest(inner), specialised.target_of(gpu))
        if isinstance(kernels, Refusal):
            raise MissError(name, None, (), kernels.reason)
        loading = [Hit(kernel, variant) for kernel in kernels for variant in kernel.variants]
        for hit in loading:
            variant = hit.variant
            source = ASTSource(inner, {}, dict(_constants(variant.key)))
            chosen = {option: value.value for option, value in variant.key.options if not influences.is_setting(option)}
            raw = vars(make_backend(gpu).parse_options(chosen))
            self._kernel(hit, source, gpu, raw)._init_handles()
        return len(loading)

    def around_prune(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner.prune_configs`: asked once for each new tuning key; one answer needs no benchmark."""

        def prune_configs(tuner: Any, kwargs: dict[str, Any], *rest: Any, **more: Any) -> Any:
            pruned = original(tuner, kwargs, *rest, **more)
            config = self._config(tuner, kwargs, pruned)
            self._chosen.config = config
            return pruned if config is None else [config]

        return prune_configs

    def around_bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner._bench`: some versions of Triton time even a single candidate."""

        def _bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            if config is getattr(self._chosen, "config", None):
                return [0.0, 0.0, 0.0]
            return original(tuner, *args, config=config, **meta)

        return _bench

    def _config(self, tuner: Any, kwargs: Mapping[str, Any], pruned: Sequence[Any]) -> Any:
        """The recorded choice among what the autotuner would time, or None to let it benchmark."""
        function = tuned_function(tuner)
        name = f"{specialised.module_of(function)}.{function.__qualname__}"
        source = specialised.digest(function)
        try:
            key = key_texts(tuning_key(tuner, kwargs), name)
        except AotkernError:
            return self._untuned(name, f"{name}: its tuning key cannot be kept: a part of it is no constant")
        target = specialised.target_of(current_target())
        which = identity(tuner)
        wanted = self.shelf.choice(source, target, key, which)
        if wanted is None and self.untuned == "usual":
            wanted = self.shelf.usual(source, target, which)
        if wanted is None and len(pruned) == 1:
            return pruned[0]  # there is nothing to choose
        if wanted is None:
            reason = self.shelf.no_choice(source, target, which)
            return self._untuned(name, f"{name}: {reason} for the tuning key ({', '.join(key)})")
        found = next((config for config in pruned if config_texts(config) == wanted.config), None)
        if found is None:
            given = dict(wanted.config)
            return self._untuned(name, f"{name}: the recorded configuration {given} is none of the autotuner's")
        event = {"event": "tuned", "key": list(key), "config": dict(wanted.config)}
        origin = {"borrowed": wanted.target} if wanted.target != str(target) else {}
        paper = {"paper": True} if wanted.paper else {}
        self._count(self.counts.tuned, name, {**event, **origin, **paper})
        _log.info("%s: configuration %s for the tuning key %s, without a benchmark", name, found, key)
        return found

    def _untuned(self, name: str, reason: str) -> None:
        self._count(self.counts.untuned, name, {"event": "untuned", "reason": reason})
        self._act(Refusal(name, reason))

    def _missed(self, refusal: Refusal) -> None:
        event = {"event": "miss", "reason": refusal.reason, "nearest": refusal.nearest}
        self._count(self.counts.misses, refusal.kernel, event)
        self._act(refusal)

    def _act(self, refusal: Refusal) -> None:
        self.counts.reasons.setdefault(refusal.reason)
        if self.on_miss == "error":
            raise MissError(refusal.kernel, refusal.nearest, refusal.problems, refusal.reason)
        if self.on_miss == "warn":
            say(f"not prebuilt, Triton compiles: {refusal.reason}")

    def _count(self, counter: Counter[str], kernel: str, event: Mapping[str, Any]) -> None:
        with self._lock.held():
            counter[kernel] += 1
        if self._sink is not None:
            self._sink.write({**event, "kernel": kernel})


def _constants(key: VariantKey) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The constants of a variant by path, as Triton holds them."""
    for at, (_, spec) in enumerate(key.arguments):
        for path, leaf in flatten(spec, (at,)):
            if isinstance(leaf, Fixed):
                yield path, rebuilt(leaf.constant, installed)


def _values(kernel: Prebuilt, bound: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the call at hand, for explanations: those that can be read."""
    found: dict[str, Any] = {}
    for parameter in kernel.entry.parameters:
        if parameter.name in bound:
            try:
                found[parameter.name] = read_argument(parameter, bound[parameter.name], parameter.name)
            except Exception:  # noqa: S112 - a tensor without an address may refuse anything; it is explained by class
                continue
    return found
