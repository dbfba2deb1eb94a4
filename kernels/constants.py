"""Numbers that device code reads; Triton asks that globals of a kernel are `constexpr`."""

import triton.language as tl

NEG = tl.constexpr(-3.4028234663852886e38)
"""-FLT_MAX: the running maximum before any entry. Never -inf: the difference of two infinities is NaN."""
TINY = tl.constexpr(1e-30)
"""Floor of a softmax denominator that is about to divide."""
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
