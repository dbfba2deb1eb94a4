"""Whether this process only compiles: then nothing that serves, records or watches kernels may act in it.

A kernel package may call `aotkern.install` when it is imported, and so may a `sitecustomize` or a `.pth` file. In a
build's worker, that would let an older bundle answer instead of the compiler.
"""

from __future__ import annotations

import sys

OPTION = "aotkern-build-worker"
"""The `-X` option of Python that workers are started with. Unlike a variable of the environment, no deployment can set
it by mistake and so be served nothing; and it is there before the first `.pth` file is read."""


def only_compiles() -> bool:
    """Whether this process is a worker of a build or an audit."""
    return OPTION in sys._xoptions
