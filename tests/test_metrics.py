"""The Prometheus export, read back from the text that a server would scrape."""

from __future__ import annotations

import sys

import pytest
from bundles import Spec, make, opened

from aotkern.arguments import Pointer
from aotkern.drivers.null import NullDriver
from aotkern.errors import MissError, MissingToolError
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.metrics import Collector
from aotkern.target import Target


@pytest.fixture
def bundle(compile_kernel) -> LoadedBundle:
    data = make(compile_kernel, "gfx942", (Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),))
    return LoadedBundle(opened(data), NullDriver((Target.parse("gfx942"),)), None, "error", None, Hooks())


def test_counters_are_scraped(bundle):
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    registry.register(Collector(bundle))
    x = Pointer(4096, "fp32", 64)
    for n in (3, 5):
        bundle["scale"][1](x, x, n, 1.0)
    bundle["scale"][0](x, x, 3, 1.0)
    with pytest.raises(MissError):
        bundle["scale"][1](x, x, 0.5, 1.0)
    (variant,) = (entry.text for entry in bundle.manifest.variants)
    labels = {"bundle": "test.aotk", "kernel": "scale"}
    value = registry.get_sample_value
    assert value("aotkern_dispatched_total", {**labels, "variant": variant}) == 2
    assert value("aotkern_loaded_total", {**labels, "variant": variant}) == 1
    assert value("aotkern_missed_total", labels) == 1
    assert value("aotkern_empty_total", labels) == 1
    assert value("aotkern_loaded_bytes_total", {"bundle": "test.aotk"}) == bundle.counters().bytes
    assert b"# HELP aotkern_missed_total Calls that no variant served" in prometheus.generate_latest(registry)


def test_missing_extra_is_named(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(MissingToolError, match=r"aotkern\[metrics\]"):
        Collector(bundle)
