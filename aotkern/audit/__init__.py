"""The proofs: pure comparisons that end in findings. Nothing here prints, formats or decides an exit code.

findings        what an audit says, in one typed form
sides           what is compared: bundles and manifests
identity        machine code against a baseline, variant by variant
resources       registers, LDS, scratch, spills and occupancy against bounds and a baseline
reproducible    a rebuild under different circumstances against the first build
policy          what a release must pass, from TOML
steps           how each step of a policy is carried out: one file each
gate            all of them, and one verdict
outcome         what comes out of the gate
places          where kernels are defined
coverage        which calls of a domain, or of a recorded run, find a prebuilt variant
jit             what a running program compiled, why, and whether it was allowed to
counting        the same for a block of code: `count_jit`
replay          what a served workload would compile
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`count_jit`, imported when it is asked for: the other audits need nothing of it."""
    if name == "count_jit":
        from aotkern.audit.counting import count_jit  # noqa: PLC0415

        return count_jit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
