"""Open bundles and launch from them: no compiler, no Triton, no warm-up.

    bundle = aotkern.load("decode.gfx950.aotk")
    bundle.preload()
    bundle["decode_reduce"][(rows, heads)](part_m, part_l, ..., NUM_SPLITS=8)

    discovery   where bundles are found: a path, an installed package, an entry point
    choosing    which of them fits the device
    owners      whether somebody else could have written a bundle file
    several     bundles for several targets, used as one
    loaded      an opened bundle: its kernels, preloading, counters, what happens on a miss
    kernel      one kernel: from the call to the launch
    modules     code objects on devices; what is loaded stays loaded
    streams     in which stream a launch goes
    observe     counters and launch hooks
    ranks       whether all ranks of a program would be served the same
    scratch     scratch memory of a launch
    native      the C extension, where it is built
    doctor      what a machine can run, and why not

Nothing here writes a file, imports Triton or torch, or opens a socket.
"""

from __future__ import annotations

from aotkern.loader.choosing import load
from aotkern.loader.loaded import LoadedBundle, MissedCall, Preloaded
from aotkern.loader.observe import HOOKS, Hooks, LaunchEvent, LoadEvent
from aotkern.loader.ranks import agree
from aotkern.loader.several import LoadedBundles

__all__ = [
    "HOOKS",
    "Hooks",
    "LaunchEvent",
    "LoadEvent",
    "LoadedBundle",
    "LoadedBundles",
    "MissedCall",
    "Preloaded",
    "agree",
    "load",
]
