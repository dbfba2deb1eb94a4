"""A serving loop: decode steps of one layer, launched from a bundle, with nothing compiled at run time.

    aotkern build -t gfx950 --name decode --out bundles
    python examples/serve_decode.py bundles                      # on a GPU that one of the bundles fits
    python examples/serve_decode.py bundles --plan gfx950        # anywhere: launches are written down, not run

The split counts that were built belong to parts with 256 compute units (gfx950), 304 (gfx942) or 132 (an H200). A GPU
with another number is served with `--units`, and one of these.

Each step packs the index lists of its rows and attends to the main and the compressed cache, as the attention layer of
a server does. The loop ends with what was dispatched, what was missed and what was compiled; the last two must be none.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from aotkern_kernels.decode import decode
from aotkern_kernels.decode_call import Segment
from aotkern_kernels.launchers import Platform
from aotkern_kernels.layout import HEAD_DIM, MAIN_BLOCK_SIZE, RECORD_BYTES, SLIDING_WINDOW, page_stride
from aotkern_kernels.ragged import pack_rows

import aotkern
from aotkern.drivers.null import NullDriver
from aotkern.target import Target

HEADS = 16
EXTRA_BLOCK_SIZE = 2
EXTRA_ENTRIES = 256


@dataclass(frozen=True)
class Layer:
    """The caches of one layer, and what a step gives to it.

    Attributes:
        main: uint8 [blocks, 64, 584], the sliding window's cache.
        extra: uint8 [blocks, 2, 584], the compressed cache.
        sink: fp32 [heads].
    """

    main: torch.Tensor
    extra: torch.Tensor
    sink: torch.Tensor

    @classmethod
    def make(cls, rows: int, device: str) -> Layer:
        """Caches with room for `rows` requests, filled with zeros, which are valid records."""
        return cls(
            main=_cache(rows * SLIDING_WINDOW // MAIN_BLOCK_SIZE + 1, MAIN_BLOCK_SIZE, device),
            extra=_cache(rows * EXTRA_ENTRIES // EXTRA_BLOCK_SIZE + 1, EXTRA_BLOCK_SIZE, device),
            sink=torch.zeros(HEADS, device=device),
        )


def _cache(blocks: int, block_size: int, device: str) -> torch.Tensor:
    stride = page_stride(block_size)
    pages = torch.zeros(blocks * stride, dtype=torch.uint8, device=device)
    return pages.as_strided((blocks, block_size, RECORD_BYTES), (stride, RECORD_BYTES, 1))


def step(launcher: Any, platform: Platform, layer: Layer, q: torch.Tensor) -> torch.Tensor:
    """One decode step: q bf16 [rows, heads, 512] to an output of the same shape."""
    rows = q.shape[0]
    window = torch.arange(rows * SLIDING_WINDOW, dtype=torch.int32, device=q.device).view(rows, SLIDING_WINDOW)
    entries = torch.arange(rows * EXTRA_ENTRIES, dtype=torch.int32, device=q.device).view(rows, EXTRA_ENTRIES)
    main = Segment(layer.main, pack_rows(launcher, window))
    extra = Segment(layer.extra, pack_rows(launcher, entries))
    return decode(launcher, platform, q, main, extra, sink=layer.sink)


def serve(bundle: aotkern.LoadedBundle, rows: tuple[int, ...], steps: int, units: int | None) -> None:
    """Preload, then `steps` steps for each batch size, split as for `units` compute units."""
    device = bundle.device_for(None, "serve")
    place = "cpu" if bundle.driver.reads_host else f"cuda:{device.index}"
    platform = Platform.of(device.arch, units or device.units)
    report = bundle.preload()
    print(f"preloaded {report.variants} variants, {report.bytes} bytes in {report.seconds * 1e3:.1f} ms")
    layer = Layer.make(max(rows), place)
    for count in rows:
        q = torch.zeros((count, HEADS, HEAD_DIM), dtype=torch.bfloat16, device=place)
        step(bundle, platform, layer, q)
        begin = time.perf_counter()
        for _ in range(steps):
            step(bundle, platform, layer, q)
        if place != "cpu":
            torch.cuda.synchronize(device.index)
        print(f"{count:5} rows: {(time.perf_counter() - begin) / steps * 1e6:8.1f} us a step")


def main() -> int:
    """Serve, and say what happened; 1 when something was compiled or missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="a bundle, a folder of bundles, or a name")
    parser.add_argument(
        "--plan", metavar="TARGET", help="write launches down for such a device instead of running them"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--units", type=int, help="split rows as for so many compute units (default: the device's)")
    options = parser.parse_args()
    driver = None if options.plan is None else NullDriver((Target.parse(options.plan),))
    bundle = aotkern.load(options.bundle, driver=driver)
    serve(bundle, tuple(options.rows), options.steps, options.units)
    found = bundle.counters()
    compiled = "triton" in sys.modules
    print(f"{found.launches} launches of {len(found.dispatched)} variants, {sum(found.missed.values())} missed")
    print("Triton was imported" if compiled else "nothing was compiled: Triton was not even imported")
    return int(compiled or bool(found.missed))


if __name__ == "__main__":
    sys.exit(main())
