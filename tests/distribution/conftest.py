"""Registries to push to and pull from, and signed bundles in a folder.

`registries` is imported in the fixtures: it skips the tests that need it where a library of the extras is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from vouching import GFX942, GFX950, NOW

from aotkern.distribution import download
from aotkern.target import Target

if TYPE_CHECKING:
    from registries import FakeRegistry, Outgoing

    from aotkern.distribution import Pulled


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ended is tried again at once."""
    monkeypatch.setattr(download, "PAUSE", 0.0)


@pytest.fixture
def fake() -> Iterator[tuple[FakeRegistry, str]]:
    import registries

    with registries.fake() as found:
        yield found


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import registries

    if registries.debian_binary() is None:
        pytest.skip("no registry server: `docker-registry` is not installed (Debian: apt-get install docker-registry)")
    with registries.debian(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(params=["fake", "debian"])
def host(request: pytest.FixtureRequest) -> str:
    """Either registry; tests choose repositories of their own."""
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, str) else found[1]


@pytest.fixture
def outgoing(tmp_path: Path) -> Outgoing:
    from registries import Outgoing

    made = Outgoing(tmp_path / "out", tmp_path / "in")
    for target in (GFX942, GFX950):
        made.make(target)
    return made


@pytest.fixture
def served(fake: tuple[FakeRegistry, str], outgoing: Outgoing) -> FakeRegistry:
    """The fake registry with both bundles under `team/pack:v1`."""
    from registries import at

    from aotkern.distribution import package

    registry, host = fake
    at(host, "team/pack:v1").publish([package(outgoing.path(target), None, NOW) for target in (GFX942, GFX950)])
    registry.requests.clear()
    return registry


@pytest.fixture
def pulled(fake: tuple[FakeRegistry, str], outgoing: Outgoing) -> Callable[..., Pulled]:
    """Pull `team/pack:v1` from the fake registry, for gfx942 where nothing else is said."""
    from registries import TRUST, at

    from aotkern.distribution import Wanted, pull

    def run(target: Target = GFX942, name: str | None = None, **more: object) -> Pulled:
        by = more.pop("by", TRUST)
        return pull(at(fake[1], "team/pack:v1"), Wanted(target, name), outgoing.into, by, NOW, **more)

    return run
