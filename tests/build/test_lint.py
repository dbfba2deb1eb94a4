import pytest

pytest.importorskip("triton")

from making import HEAD, written

from aotkern.build.lint import notes
from aotkern.build.registry import load

KERNEL = (
    HEAD
    + """
@triton.jit(do_not_specialize=["C", "n"])
def kernel(x, n, left_over, NB: tl.constexpr, C: tl.constexpr, D: tl.constexpr = 1):
    '''NB and left_over are only spoken of.'''
    D = n + C
    tl.store(x, D)


KERNELS = (
    Kernel(
        kernel,
        Space(
            ("gfx942",),
            {"x": Pointer("fp32"), "n": Int(classes=("any",)), "left_over": Int(), "NB": Constexpr(1, 2), "C": 1},
        ),
    ),
)
"""
)


def test_what_multiplies_variants_to_no_effect_is_noted(tmp_path):
    (kernel,) = load([written(tmp_path, KERNEL)])
    unread = "it is never read; each value that is declared for it is a variant with the same code"
    assert list(notes(kernel)) == [
        f"kernel kernel, parameter left_over: {unread}",
        f"kernel kernel, parameter NB: {unread}",
        "kernel kernel, parameter C: do_not_specialize has no effect on a tl.constexpr; "
        "each of its values is a variant",
    ]


def test_the_shipped_kernels_waste_nothing():
    from pathlib import Path

    from aotkern.build.registry import Source

    kernels = load([Source.parse(str(Path(__file__).parents[2] / "kernels"))])
    assert [note for kernel in kernels for note in notes(kernel)] == []
