"""A loader that is told whom to trust uses nothing that they do not vouch for."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

import vouching

from aotkern.errors import TrustError
from aotkern.loader import load


def trusting(seed):
    """A trust file that believes one key; the loader asks the clock, so it must hold for long."""
    return vouching.trust(
        vouching.key_table("signer", vouching.key(seed), end="2126-01-01"), vouching.rule_table("signer")
    )


@pytest.fixture
def signed(tmp_path):
    data = vouching.bundle()
    path = tmp_path / "pack.gfx942.aotk"
    path.write_bytes(data)
    path.with_name("pack.gfx942.aotk.sig").write_bytes(vouching.sealed(vouching.statement(data), vouching.key(1)))
    return path


def test_a_bundle_that_a_trusted_key_signed_is_used(signed):
    loaded = load(signed, device="null:gfx942", trust=trusting(1))
    assert loaded.manifest.target == vouching.GFX942


def test_another_key_is_refused_before_anything_is_opened(signed):
    with pytest.raises(TrustError, match="signature"):
        load(signed, device="null:gfx942", trust=trusting(2))


def test_without_a_signature_a_trusting_loader_refuses(signed):
    signed.with_name("pack.gfx942.aotk.sig").unlink()
    with pytest.raises(TrustError, match="a signature beside it, found none"):
        load(signed, device="null:gfx942", trust=trusting(1))
    assert load(signed, device="null:gfx942").manifest.variants == ()


def test_a_signature_of_other_bytes_is_refused(signed):
    signed.write_bytes(vouching.bundle("two"))
    with pytest.raises(TrustError):
        load(signed, device="null:gfx942", trust=trusting(1))
