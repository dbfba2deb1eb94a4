"""A bundle of a small kernel, loaded with the null driver and with the HIP driver on a library without a GPU."""

from __future__ import annotations

import pytest
from bundles import Spec, make, opened

from aotkern.drivers.null import NullDriver
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.target import Target

SPECS = (
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32:D,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp16:DS,out:*fp16:DS,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:DS,out:*fp32:DS,n=1,factor:fp32,BLOCK=128"),
)


@pytest.fixture(scope="session")
def data(compile_kernel) -> bytes:
    return make(compile_kernel, "gfx942", SPECS)


@pytest.fixture
def null() -> NullDriver:
    return NullDriver(tuple(Target.parse(text) for text in ("gfx942", "gfx942", "gfx950")))


@pytest.fixture
def loaded(data, null) -> LoadedBundle:
    return LoadedBundle(opened(data), null, None, "error", None, Hooks())
