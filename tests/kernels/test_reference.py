"""The float64 reference against itself in two steps, and its decoding of bytes against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention import query, ragged, random_cache, random_rows, reference_segment, write_record

from kernels import reference
from kernels.decode_call import Segment


@pytest.mark.parametrize(("fnuz", "dtype"), [(False, torch.float8_e4m3fn), (True, torch.float8_e4m3fnuz)])
def test_fp8_is_pytorchs(fnuz: bool, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    wanted = codes.view(dtype).double().numpy()
    np.testing.assert_array_equal(reference.fp8_values(codes.numpy(), fnuz=fnuz), wanted)


def test_bf16_and_scales() -> None:
    numbers = torch.tensor([0.0, -1.5, 3.0e38, 2.0**-130, float("inf")]).bfloat16()
    np.testing.assert_array_equal(reference.bf16_values(numbers.view(torch.uint8).numpy()), numbers.double().numpy())
    scales = reference.scale_values(np.array([0, 1, 127, 254, 255], np.uint8))
    np.testing.assert_array_equal(scales, [2.0**-127, 2.0**-126, 1.0, 2.0**127, np.inf])


def test_a_poisoned_record_is_zero() -> None:
    cache = random_cache(1, 2, 4, fnuz=False)
    write_record(cache, 5, poisoned=True)
    segment = reference_segment(Segment(cache, ragged([[5]])), fnuz=False)
    assert not segment.latent(segment.entries(0)).any()


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("splits", [1, 2, 7, 32])
def test_two_steps_are_one(splits: int, with_sink: bool) -> None:
    segments = tuple(
        reference_segment(
            Segment(random_cache(seed, 16, 4, fnuz=False), ragged(random_rows(seed, 70, lengths))), fnuz=False
        )
        for seed, lengths in ((2, (9, 0, 33)), (3, (40, 0, 1)))
    )
    sink = np.array([-1.0, 2.0, -np.inf]) if with_sink else None
    call = reference.Call(query(4, 3, 3).double().numpy(), segments, sink=sink)
    found = reference.reduce(reference.partial(call, splits), sink)
    np.testing.assert_allclose(found, reference.attend(call), rtol=1e-12, atol=1e-14)


def test_attention_is_the_softmax_average() -> None:
    cache = random_cache(5, 2, 4, fnuz=False)
    segment = reference_segment(Segment(cache, ragged([[0, 3, 99, -1, 3]])), fnuz=False)
    q = query(6, 1, 2).double().numpy()
    rows = torch.from_numpy(np.stack([segment.cache.row(slot) for slot in (0, 3, 3)]))
    weights = torch.softmax(torch.from_numpy(q[0]) @ rows.T * 512**-0.5, dim=1)
    np.testing.assert_allclose(reference.attend(reference.Call(q, (segment,)))[0], weights @ rows, rtol=1e-12)
