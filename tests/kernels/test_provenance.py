"""The two promises are false unless every condition holds."""

from __future__ import annotations

from itertools import product

from kernels.provenance import asks_adaptive, may_trust_extra


def test_trust_needs_all_four() -> None:
    for design, dtype, transfer, extra in product(
        ("gfx942", "gfx950"), ("fp8_ds_mla", "fp8", "auto", ""), (False, True), (False, True)
    ):
        trusted = may_trust_extra(design=design, cache_dtype=dtype, has_transfer_connector=transfer, has_extra=extra)
        assert trusted == ((design, dtype, transfer, extra) == ("gfx950", "fp8_ds_mla", False, True))


def test_adaptive_needs_all_four() -> None:
    for design, ratio, extra, capture in product(("gfx942", "gfx950"), (1, 4, 128), (False, True), (False, True)):
        asked = asks_adaptive(design=design, compress_ratio=ratio, has_extra=extra, built_for_capture=capture)
        assert asked == ((design, ratio, extra, capture) == ("gfx950", 128, True, True))
