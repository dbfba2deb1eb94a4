"""A device on paper and a private compile cache for every test of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.fixture
def device() -> Iterator[Callable]:
    """Make a target's device active: `device("gfx942")`."""
    from contextlib import ExitStack

    from aotkern.target import Target
    from aotkern.triton_bridge.paper import paper_device

    with ExitStack() as stack:
        yield lambda name: stack.enter_context(paper_device(Target.parse(name)))
