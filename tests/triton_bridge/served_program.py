"""A small program of somebody else's, on a device on paper: it knows nothing of bundles."""

from __future__ import annotations

import multiprocessing
import sys

import served_kernels

from aotkern.target import Target
from aotkern.triton_bridge.paper import PaperTensor, paper_device


def work(numbers: list[int]) -> None:
    with paper_device(Target.parse("gfx942")):
        for n in numbers:
            served_kernels.scale[(1,)](PaperTensor("float32"), PaperTensor("float32"), n, BLOCK=64)


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:]]
    if sys.argv[1] == "here":
        work(numbers)
    else:
        job = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(numbers,))
        job.start()
        job.join()
        sys.exit(job.exitcode)
