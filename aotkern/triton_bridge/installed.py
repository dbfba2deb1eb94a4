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
from aotkern.deny import Deny
from aotkern.errors import InputError
from aotkern.isolation import only_compiles
from aotkern.loader.discovery import find
from aotkern.lock import Lock
from aotkern.settings import DENY, Settings
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
        self,
        bundles: Sequence[Bundle],
        on_miss: OnMiss,
        untuned: Untuned,
        *,
        other_triton: bool,
        sink: Sink | None,
        deny: Deny = Deny(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self.bundles, self._sink = tuple(bundles), sink
        # The version is known once Triton has been imported; until then no request can come.
        self._server = Server(Shelf(bundles, "", mixed=other_triton, deny=deny), on_miss, untuned, sink)
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
        if self._sink is not None:
            self._sink.write({"event": "interpreted" if _interprets(module) else "served"})


class Inert(Installation):
    """What `install` gives to a worker of a build: it opens no bundle, serves nothing, and refuses nothing."""

    def __init__(self) -> None:
        super().__init__((), "jit", "miss", other_triton=False, sink=None)

    def preload(self, kernel: Any, *functions: Any) -> int:  # noqa: ARG002 - as in a process that is served
        """Load nothing."""
        return 0


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
    deny: Iterable[str] = (),
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
        deny: Variants or code objects that are out of service, beside those of `AOTKERN_DENY`; see `aotkern.deny`.

    In the worker processes of builds and audits this does nothing: there the compiler answers, and nothing else.

    Raises:
        InputError: There is no such bundle.
        IntegrityError: A bundle is damaged, or not the one that is locked.
    """
    if on_miss not in ON_MISS or untuned not in UNTUNED:
        expected = f"on_miss in {', '.join(ON_MISS)} and untuned in {', '.join(UNTUNED)}"
        raise InputError.one("install", expected, f"{on_miss!r} and {untuned!r}")
    if only_compiles():
        return Inert()
    names = [bundle] if isinstance(bundle, (str, Path)) else list(bundle)
    denied = denied_by(deny)
    bundles = opened(names, locked)
    for entry in denied.idle(item.manifest for item in bundles):
        say(f"deny: {entry} denies nothing in the bundles that serve this process")
    return _put(Installation(bundles, on_miss, untuned, other_triton=other_triton, sink=sink, deny=denied))


def denied_by(more: Iterable[str] = ()) -> Deny:
    """What is out of service: the entries of `AOTKERN_DENY`, and more.

    Raises:
        InputError: An entry is neither a key nor a digest, or a list cannot be read.
    """
    return Deny.read([*Deny.read(Settings.read().deny, DENY).entries, *more])


def _put(installation: Installation) -> Installation:
    with _one:
        _installed.append(installation)
        installation.seam.put()
    return installation


def _interprets(triton: ModuleType) -> bool:
    """Whether Triton interprets kernels in Python, where nothing is ever compiled or served."""
    runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
    return bool(getattr(runtime, "interpret", False))


def opened(names: Sequence[str | Path], locked: str | Path | None) -> tuple[Bundle, ...]:
    """Find and verify bundles, against a lock file where there is one.

    Raises:
        InputError: Nothing has one of these names.
        IntegrityError: A bundle is damaged, or not the one that is locked.
        TrustError: Anybody may have written a bundle, and no lock file vouches for it.
    """
    lock = None if locked is None else Lock.read(Path(locked))
    found = []
    settings = Settings.read()
    for name in names:
        places = find(name, settings.bundle_path)
        if not places:
            raise InputError.one(
                str(name), "the name of a bundle, an entry point, or a package with bundles", "none found"
            )
        # A lock file vouches for the content, whoever could write the file.
        by_owner = lock is None and not settings.accept_others
        found += [place.open(by_owner=by_owner) for place in places]
    if lock is not None:
        lock.check(found)
    return tuple(found)


def start(_: str) -> AfterImport:
    """Serve this process as its environment says; returns the finder that must look for `triton` next."""
    return _from(served()).seam.finder


def plugin() -> None:
    """Entry point of servers that load plugins in each of their processes: serve if the environment names bundles.

    A process that is served already, because `aotkern run` started it or the plugin was loaded before, stays as it is.
    Where bundles cannot be used and misses are errors, every request of this process is a miss from then on: a server
    that swallows the error of a plugin does not compile in silence.
    """
    wanted = served()
    if not wanted.bundles or _installed:
        return
    try:
        _from(wanted)
    except Exception:
        if wanted.on_miss == "error":
            _put(Installation((), "error", "miss", other_triton=False, sink=None))
        raise


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
