"""Putting prebuilt binaries on a process: `install` in code, `start` in an injected process, `plugin` for servers.

The three end in the same `Installation`. Nothing is written to disk, unless events are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from aotkern.bundle import Bundle
from aotkern.errors import InputError
from aotkern.loader.discovery import find
from aotkern.lock import Lock
from aotkern.settings import Settings
from aotkern.triton_bridge.imports import AfterImport
from aotkern.triton_bridge.seam import Seam
from aotkern.triton_bridge.serve import ON_MISS, UNTUNED, Counts, OnMiss, Server, Untuned
from aotkern.triton_bridge.shelf import Shelf
from aotkern.triton_bridge.sink import FileSink, Sink
from aotkern.triton_bridge.surroundings import Served, say, served


class Installation:
    """Prebuilt binaries on this process, from `install` to `remove`.

    Attributes:
        bundles: What is served.
        counts: What was asked for, and what it got.
    """

    def __init__(
        self, bundles: Sequence[Bundle], on_miss: OnMiss, untuned: Untuned, *, other_triton: bool, sink: Sink | None
    ) -> None:
        self.bundles = tuple(bundles)
        # The version is known once Triton has been imported; until then no request can come.
        self._server = Server(Shelf(bundles, "", mixed=other_triton), on_miss, untuned, sink)
        methods = {"prune_configs": self._server.around_prune, "_bench": self._server.around_bench}
        self.seam = Seam(self._server.around_compile, methods, self._ready)

    @property
    def counts(self) -> Counts:
        """What was asked for, and what it got."""
        return self._server.counts

    def preload(self, kernel: Any) -> int:
        """Load every prebuilt variant of a kernel onto the current device, before a graph is captured.

        Args:
            kernel: The `@triton.jit` function, with or without autotuner and heuristics around it.

        Returns:
            How many variants were loaded.

        Raises:
            MissError: No bundle has this kernel for the current device.
        """
        return self._server.preload(kernel)

    def remove(self) -> None:
        """Serve no more; kernels that were served stay in Triton's tables."""
        with _one:
            self.seam.remove()
            if self in _installed:
                _installed.remove(self)

    def _ready(self, module: ModuleType) -> None:
        self._server.shelf.triton = str(getattr(module, "__version__", "unknown"))
        count = sum(len(bundle.manifest.variants) for bundle in self.bundles)
        targets = ", ".join(sorted({str(bundle.manifest.target) for bundle in self.bundles}))
        say(f"{count} prebuilt variants for {targets} from {', '.join(bundle.where for bundle in self.bundles)}")


_one = threading.Lock()
_installed: list[Installation] = []


def active() -> tuple[Installation, ...]:
    """What is installed on this process now."""
    return tuple(_installed)


def install(
    bundle: str | Path | Iterable[str | Path],
    *,
    on_miss: OnMiss = "error",
    untuned: Untuned = "miss",
    other_triton: bool = False,
    locked: str | Path | None = None,
    sink: Sink | None = None,
) -> Installation:
    """Serve prebuilt binaries to the Triton kernels of this process, which are called as ever.

    Args:
        bundle: A bundle, a folder, a name in `AOTKERN_BUNDLE_PATH`, an entry point or a package; or several of these.
            Bundles for several targets may come together: the device decides.
        on_miss: What to do where no variant serves a call: "error" raises `MissError` before anything is compiled,
            "warn" says so on standard error and lets Triton compile, "jit" lets it compile in silence.
        untuned: What an autotuner does with a tuning key that was not recorded: "miss" is a miss like others, "usual"
            takes the configuration that was chosen most often.
        other_triton: Use bundles that another tested version of Triton built. The code is then not what the running
            version would make.
        locked: A lock file; a bundle that is not in it is refused.
        sink: Takes an event for each hit and miss.

    Raises:
        InputError: There is no such bundle.
        IntegrityError: A bundle is damaged, or not the one that is locked.
    """
    if on_miss not in ON_MISS or untuned not in UNTUNED:
        expected = f"on_miss in {', '.join(ON_MISS)} and untuned in {', '.join(UNTUNED)}"
        raise InputError.one("install", expected, f"{on_miss!r} and {untuned!r}")
    names = [bundle] if isinstance(bundle, (str, Path)) else list(bundle)
    installation = Installation(opened(names, locked), on_miss, untuned, other_triton=other_triton, sink=sink)
    with _one:
        _installed.append(installation)
        installation.seam.put()
    return installation


def opened(names: Sequence[str | Path], locked: str | Path | None) -> tuple[Bundle, ...]:
    """Find and verify bundles, against a lock file where there is one.

    Raises:
        InputError: Nothing has one of these names.
        IntegrityError: A bundle is damaged, or not the one that is locked.
    """
    lock = None if locked is None else Lock.read(Path(locked))
    found = []
    for name in names:
        places = find(name, Settings.read().bundle_path)
        if not places:
            raise InputError.one(
                str(name), "the name of a bundle, an entry point, or a package with bundles", "none found"
            )
        found += [place.open() for place in places]
    if lock is not None:
        lock.check(found)
    return tuple(found)


def start(_: str) -> AfterImport:
    """Serve this process as its environment says; returns the finder that must look for `triton` next."""
    return _from(served()).seam.finder


def plugin() -> None:
    """Entry point of servers that load plugins in each of their processes: serve if the environment names bundles.

    A process that is served already, because `aotkern run` started it or the plugin was loaded before, stays as it is.
    """
    wanted = served()
    if wanted.bundles and not _installed:
        _from(wanted)


def _from(wanted: Served) -> Installation:
    sink = FileSink(Path(wanted.events), dict) if wanted.events else None
    return install(
        wanted.bundles,
        on_miss=wanted.on_miss,  # type: ignore[arg-type]  # `install` checks it
        untuned=wanted.untuned,  # type: ignore[arg-type]
        other_triton=wanted.other_triton,
        locked=wanted.locked or None,
        sink=sink,
    )
