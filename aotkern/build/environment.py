"""The environment of a compile: pinned, and made from nothing but what is named here.

A worker does not inherit the caller's variables. Triton and LLVM read dozens that change code, and a default that flips
between versions is worse than a pinned value that is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

INHERITED = ("PATH", "LD_LIBRARY_PATH")
"""What a process needs to find programs and libraries; neither reaches the compiled code."""


def pinned(*, line_info: bool = False) -> dict[str, str]:
    """The variables that decide what code comes out; they are recorded in the manifest.

    Args:
        line_info: Keep source lines in the debug sections. The code stays the same, but the bytes then depend on where
            the source stands, so this is for debugging and not for release.
    """
    return {
        # Unset, Triton 3.9 warns that the default will flip; 0 and 1 give different code.
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_DISABLE_LINE_INFO": "0" if line_info else "1",
    }


def for_worker(
    scratch: Path, settings: Mapping[str, str], inherited: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of one worker process.

    Args:
        scratch: A private, empty folder that only this worker uses.
        settings: From `pinned`.
        inherited: The caller's environment; only `INHERITED` is taken from it.
        overrides: Variables that an audit changes to show that they do not matter.
    """
    return {
        **{name: inherited[name] for name in INHERITED if name in inherited},
        **settings,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_HOME": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        # Private and empty already; this also keeps two variants of one worker from sharing an entry.
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_STORE_BINARY_ONLY": "1",
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        **overrides,
    }


@contextmanager
def holding(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this worker for one compile; None takes one out.

    Triton and its passes read them anew for each compile, by the C library's `getenv`.
    """
    before = {name: os.environ.get(name) for name in variables}
    _put(variables)
    try:
        yield
    finally:
        _put(before)


def _put(variables: Mapping[str, str | None]) -> None:
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
