"""The counters of loaded bundles as Prometheus metrics (the extra `metrics`).

    from prometheus_client import REGISTRY
    REGISTRY.register(aotkern.metrics.Collector(bundle))

The counters are read when Prometheus asks; a launch costs nothing more for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aotkern.errors import MissingToolError
from aotkern.loader import LoadedBundle


class Collector:
    """Gives the counters of bundles to a registry of `prometheus_client`.

    Args:
        bundles: What to report on; each is told apart by where it came from.

    Raises:
        MissingToolError: `prometheus_client` is not installed.
    """

    def __init__(self, *bundles: LoadedBundle) -> None:
        try:
            self._core = importlib.import_module("prometheus_client.core")
        except ImportError as error:
            advice = "pip install aotkern[metrics]"
            raise MissingToolError("prometheus_client", "to export metrics", advice) from error
        self._bundles = bundles

    def collect(self) -> Iterator[Any]:
        """One metric family for each counter."""
        found = [(bundle.where, bundle.counters()) for bundle in self._bundles]
        by_variant = ("bundle", "kernel", "variant")
        yield self._family("dispatched", "Launches of prebuilt variants", by_variant, _variants(found, "dispatched"))
        yield self._family("loaded", "Loads of prebuilt variants, by device", by_variant, _variants(found, "loaded"))
        by_kernel = ("bundle", "kernel")
        yield self._family("missed", "Calls that no variant served", by_kernel, _kernels(found, "missed"))
        yield self._family("empty", "Calls with an empty grid", by_kernel, _kernels(found, "empty"))
        sizes = [((where,), snapshot.bytes) for where, snapshot in found]
        yield self._family("loaded_bytes", "Bytes of code objects loaded", ("bundle",), sizes)
        seconds = [((where,), snapshot.seconds) for where, snapshot in found]
        yield self._family("load_seconds", "Time that the driver took to load them", ("bundle",), seconds)

    def _family(
        self, name: str, text: str, labels: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], float]]
    ) -> Any:
        family = self._core.CounterMetricFamily(f"aotkern_{name}", text, labels=labels)
        for values, count in rows:
            family.add_metric(values, count)
        return family


def _variants(found: list[tuple[str, Any]], name: str) -> list[tuple[tuple[str, ...], float]]:
    rows: list[tuple[tuple[str, ...], float]] = []
    for where, snapshot in found:
        counter: Mapping[str, int] = getattr(snapshot, name)
        rows += [((where, text.partition("[")[0], text), count) for text, count in counter.items()]
    return rows


def _kernels(found: list[tuple[str, Any]], name: str) -> list[tuple[tuple[str, ...], float]]:
    return [((where, kernel), count) for where, snapshot in found for kernel, count in getattr(snapshot, name).items()]
