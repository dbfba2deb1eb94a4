"""Ed25519 keys: PEM files, key ids, signing and verifying. The only module that touches the cryptography library.

The library is imported when something is signed or verified, and not before: a program that asks for no signature
needs none. A public key is handled as the 44 bytes of its SubjectPublicKeyInfo (RFC 8410), and its id is the digest of
those bytes, so that ids can be computed and compared without the library.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from aotkern.digest import Digest
from aotkern.errors import InputError, MissingToolError

_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""SubjectPublicKeyInfo of an ed25519 key, up to its 32 bytes (RFC 8410, section 4)."""

_SIZE = len(_PREFIX) + 32


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies.

    Attributes:
        der: Its SubjectPublicKeyInfo, 44 bytes.
    """

    der: bytes

    @classmethod
    def parse(cls, text: str, where: str = "public key") -> PublicKey:
        """Read the base64 text of a SubjectPublicKeyInfo: the line between the marks of a public PEM file.

        Raises:
            InputError: Not the one spelling of an ed25519 key.
        """
        try:
            der = base64.b64decode(text, validate=True)
        except ValueError:
            der = b""
        if len(der) != _SIZE or not der.startswith(_PREFIX):
            raise InputError.one(where, "an ed25519 public key, base64 of 44 bytes", repr(text)[:80])
        return cls(der)

    @property
    def id(self) -> Digest:
        """The name by which signatures and trust files refer to this key."""
        return Digest.of(self.der)

    @property
    def pem(self) -> str:
        """The text of its PEM file."""
        return f"-----BEGIN PUBLIC KEY-----\n{self}\n-----END PUBLIC KEY-----\n"

    def __str__(self) -> str:
        return base64.standard_b64encode(self.der).decode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made that signature over that message.

        Raises:
            MissingToolError: The cryptography library is not installed.
        """
        ed25519, _ = _library()
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.der[len(_PREFIX) :]).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """A private key. It has no `repr` of its content and is never written anywhere but by `to_pem`."""

    def __init__(self, private: Any) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key from the system's randomness.

        Raises:
            MissingToolError: The cryptography library is not installed.
        """
        return cls(_library()[0].Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, data: bytes, passphrase: bytes | None, where: str) -> SigningKey:
        """Read a PKCS #8 PEM file.

        Args:
            data: The file.
            passphrase: What it is encrypted with, or None.
            where: Names the file in errors.

        Raises:
            InputError: Not such a file, not an ed25519 key, or a passphrase that is wrong, missing or not needed.
            MissingToolError: The cryptography library is not installed.
        """
        ed25519, serialization = _library()
        from cryptography.exceptions import InternalError, UnsupportedAlgorithm  # noqa: PLC0415

        try:
            private = serialization.load_pem_private_key(data, passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            found = str(error)[:200] or type(error).__name__
            raise InputError.one(where, "a private key in PEM, and its passphrase if it has one", found) from None
        except InternalError:  # an X448 key of another length: OpenSSL refuses it with an error that nobody foresaw
            raise InputError.one(where, "an ed25519 key", "a key that the library cannot read") from None
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise InputError.one(where, "an ed25519 key", type(private).__name__)
        return cls(private)

    def to_pem(self, passphrase: bytes | None) -> bytes:
        """The PKCS #8 PEM file of this key, encrypted when there is a passphrase."""
        _, serialization = _library()
        encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return bytes(self._private.private_bytes(*form))

    @property
    def public(self) -> PublicKey:
        """The key that verifies what this one signs."""
        return PublicKey(_PREFIX + bytes(self._private.public_key().public_bytes_raw()))

    def sign(self, message: bytes) -> bytes:
        """The signature over a message; equal messages get equal signatures."""
        return bytes(self._private.sign(message))


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError:
        raise MissingToolError("cryptography", "for signatures", "pip install 'aotkern[signing]'") from None
    return ed25519, serialization
