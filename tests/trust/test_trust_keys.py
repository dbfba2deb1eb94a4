"""Keys: published test vectors, PEM files, and what is not a key."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotkern.digest import Digest
from aotkern.errors import InputError, MissingToolError
from aotkern.trust import keys
from aotkern.trust.keys import PublicKey, SigningKey

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    key = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)))
    assert key.public.der[-32:].hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert key.public.verifies(bytes.fromhex(signature), bytes.fromhex(message))
    assert not key.public.verifies(bytes.fromhex(signature), b"other")


def test_signatures_of_another_length_or_form_do_not_verify() -> None:
    key = SigningKey.generate()
    good = key.sign(b"m")
    order = 2**252 + 27742317777372353535851937790883648493
    malleable = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
    for bad in (b"", good[:-1], good + b"\0", bytes(64), good[::-1], malleable):
        assert not key.public.verifies(bad, b"m")


@pytest.mark.parametrize("passphrase", [None, b"correct horse"])
def test_pem_reads_back(passphrase: bytes | None) -> None:
    key = SigningKey.generate()
    pem = key.to_pem(passphrase)
    assert SigningKey.from_pem(pem, passphrase, "k").public == key.public
    assert (b"ENCRYPTED" in pem) == bool(passphrase)


def test_the_public_pem_is_that_of_the_library() -> None:
    from cryptography.hazmat.primitives import serialization

    key = SigningKey.generate()
    loaded = serialization.load_pem_public_key(key.public.pem.encode())
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert loaded.public_bytes(*form) == key.public.der
    assert key.public.id == Digest.of(key.public.der)
    assert PublicKey.parse(str(key.public)) == key.public


def rsa_pem() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(*form)


@pytest.mark.parametrize(
    ("data", "passphrase", "expected"),
    [
        (b"", None, "a private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", None, "a private key in PEM"),
        (SigningKey.generate().public.pem.encode(), None, "a private key in PEM"),
        (SigningKey.generate().to_pem(b"right"), b"wrong", "its passphrase"),
        (SigningKey.generate().to_pem(b"right"), None, "its passphrase"),
        (SigningKey.generate().to_pem(None), b"needless", "its passphrase"),
        (rsa_pem(), None, "an ed25519 key"),
    ],
)
def test_what_is_no_private_key(data: bytes, passphrase: bytes | None, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        SigningKey.from_pem(data, passphrase, "key.pem")


@pytest.mark.parametrize("text", ["", "AAAA", "MCowBQYDK2VwAyEA", "MCowBQYDK2VwAyEA" + "A" * 46, "not base64!", "é"])
def test_what_is_no_public_key(text: str) -> None:
    with pytest.raises(InputError, match="ed25519 public key"):
        PublicKey.parse(text, "trust.toml")


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(MissingToolError, match=r"aotkern\[signing\]"):
        SigningKey.generate()
    with pytest.raises(MissingToolError, match="cryptography"):
        PublicKey(keys._PREFIX + bytes(32)).verifies(bytes(64), b"m")


def test_reading_and_deciding_import_no_cryptography_before_a_signature_is_checked() -> None:
    code = (
        "import sys, aotkern.trust, aotkern.cli.inspect, aotkern.cli.trust;"
        "sys.exit(any(name.split('.')[0] == 'cryptography' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
