"""Another function named `act`."""

import triton


@triton.jit
def act(x):
    """A hundred more."""
    return x + 100
