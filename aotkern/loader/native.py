"""The C extension's side of a kernel: what it is told, and when it may launch by itself.

`_fastpath` repeats the way of `kernel.py` in C for the calls that need nothing unusual, and hands every other call back
to it. It holds no rule of its own: it is given the table that `dispatch` made, and the layout that `abi` made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aotkern.loader.kernel import Kernel, Ready
    from aotkern.loader.loaded import LoadedBundle


class Native(Protocol):
    """A kernel in the C extension."""

    def bind(self, grid: object) -> Callable[..., Any]:
        """What launches on this grid."""

    def counted(self) -> tuple[tuple[int, ...], int]:
        """Launches of each variant in the table's order, and calls with an empty grid."""

    def offer(self, position: int, ready: Ready) -> None:
        """A variant that is ready on a device."""


def attach(kernel: Kernel, bundle: LoadedBundle) -> Native | None:
    """The extension's side of a kernel; None where the extension is not built, or is not to be used."""
    del kernel, bundle
    return None
