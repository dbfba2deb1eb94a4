"""What tests of trust and distribution share: keys that are the same in every run, bundles, signatures, trust files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from aotkern.bundle import Bundle, encode
from aotkern.manifest import Manifest
from aotkern.target import Target
from aotkern.trust import Audit, Signed, SigningKey, Statement, Words, sign
from aotkern.trust.dsse import Envelope, Signature, to_bytes
from aotkern.trust.statement import PAYLOAD_TYPE
from aotkern.trust.trustfile import Trust

NOW = datetime(2026, 7, 1, tzinfo=timezone.utc)
GFX942, GFX950 = Target.parse("gfx942"), Target.parse("gfx950")


def key(seed: int) -> SigningKey:
    """The same key for the same number."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def bundle(seed: str = "one", target: Target = GFX942, provenance: Mapping[str, str] | None = None) -> bytes:
    """A bundle without variants, whose manifest differs by `seed`: trust looks at bytes, not at kernels."""
    manifest = Manifest.make(target, {"triton": seed}, {}, (), {}, ())
    return encode(manifest, {}, provenance or {"revision": "0" * 40})


def statement(
    data: bytes,
    file: str = "pack.gfx942.aotk",
    sequence: int = 5,
    audits: Sequence[Audit] = (),
    expires: datetime | None = None,
) -> bytes:
    """The payload of a true statement."""
    words = Words(sequence, tuple(audits), expires)
    return Statement.about(Bundle.decode(data, file), file, words).to_bytes()


def signed(path: Path, signer: SigningKey, sequence: int = 5, *audits: Audit, fresh: bool = False) -> Signed:
    """Sign one bundle file at `NOW`."""
    return sign({path: Words(sequence, audits)}, signer, NOW, fresh=fresh)[0]


def sealed(payload: bytes, *keys: SigningKey, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """One line of a signature file."""
    envelope = Envelope(payload_type, payload, ())
    for signer in keys:
        envelope = envelope.signed(Signature(signer.public.id, signer.sign(envelope.message)))
    return to_bytes([envelope])


def key_table(name: str, signer: SigningKey, start: str = "2026-01-01", end: str = "2027-01-01") -> str:
    """A `[[key]]` of a trust file."""
    fields = f'name = "{name}"\nid = "{signer.public.id}"\npublic = "{signer.public}"\n'
    return f"[[key]]\n{fields}from = {start}T00:00:00Z\nuntil = {end}T00:00:00Z\n"


def rule_table(keys: str, **changes: object) -> str:
    """A `[[rule]]` of a trust file; `keys` are names with spaces between them."""
    names = ", ".join(f'"{name}"' for name in keys.split())
    fields = {"bundle": '"pack"', "target": '"hip:*"', "threshold": 1, "sequence": 0, "audits": "[]", **changes}
    return f"[[rule]]\nkeys = [{names}]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


def trust_text(*tables: str, revoked: Sequence[str] = ()) -> str:
    """A trust file."""
    listed = ", ".join(f'"{digest}"' for digest in revoked)
    return "\n".join(["version = 1", f"revoked = [{listed}]", *tables])


def trust(*tables: str, revoked: Sequence[str] = ()) -> Trust:
    """A trust file, parsed."""
    return Trust.parse(trust_text(*tables, revoked=revoked).encode(), "trust.toml")
