"""The build half: from kernel sources to bundles, on a machine without a GPU.

    registry     finds and imports kernel sources (in a worker only)
    closure      digests a kernel with everything it reaches
    lint         what a declaration pays for without using it
    compiler     compiles one variant with Triton (in a worker only)
    worker       the process that does both, in a pinned environment and with a private Triton cache
    pool         the parent's side of the workers: tasks, time-outs, restarts
    executor     where variants are compiled: the pool, or
    dask_executor, dask_station   a Dask cluster: the driver's side and the workers'
    shipping     kernel sources on their way to another machine
    store        what was compiled before, by content
    builder      the whole way, from a request to bundles and a report

Only `registry` imports kernel sources and only `compiler` and `toolchain` import Triton. The run-time half imports none
of this.
"""
