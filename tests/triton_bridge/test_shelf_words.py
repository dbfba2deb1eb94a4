"""What a miss under Triton says of a class that is more general than the call at hand."""

from __future__ import annotations

from bundles import Spec, make, opened

from aotkern.arguments import Pointer
from aotkern.spec import VariantKey
from aotkern.triton_bridge.shelf import Prebuilt, Refusal, Shelf


def test_nothing_is_made_up_about_a_small_tensor(compile_kernel):
    bundle = opened(make(compile_kernel, "gfx942", (Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),)))
    asked = VariantKey.parse("scale[hip:gfx942](x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128)").arguments
    tensor = Pointer(4096, "fp32", 1 << 20)
    values = {"x": tensor, "out": tensor, "n": 17, "factor": 0.5}
    shelf = Shelf((bundle,), "3.9.0", mixed=True)
    found = shelf.choose((Prebuilt(bundle, bundle.manifest.kernels[0]),), asked, {}, {}, values)
    assert isinstance(found, Refusal)
    assert "2147483648" not in found.reason
    assert "x: storage of at most 2 GiB - 1 -> storage of any size asked for" in found.reason
    assert 'declare x as Pointer("fp32", storage="both"), too' in found.reason
    large = {**values, "x": Pointer(4096, "fp32", 2**31)}
    told = shelf.choose((Prebuilt(bundle, bundle.manifest.kernels[0]),), asked, {}, {}, large)
    assert "x: storage of at most 2 GiB - 1 -> storage over 2 GiB (2147483648 bytes)" in told.reason
