"""Trust: who says what about a bundle, and whether that is enough to use it.

`require` is the decision, and pure: bytes, a name, signatures, a trust file and the time go in, an `Approval` with the
opened bundle comes out, or a `TrustError` that gives every reason. `require_file` reads the two files first and `sign`
makes the second of them. How keys come to be trusted is the business of whoever writes the trust file.
"""

from aotkern.trust.decision import Approval, require
from aotkern.trust.files import Signed, join, joinable, require_file, sign, signature_path
from aotkern.trust.keys import PublicKey, SigningKey
from aotkern.trust.memory import Memory
from aotkern.trust.statement import Audit, Statement, Words
from aotkern.trust.trustfile import Rule, Trust, TrustedKey

__all__ = [
    "Approval",
    "Audit",
    "Memory",
    "PublicKey",
    "Rule",
    "Signed",
    "SigningKey",
    "Statement",
    "Trust",
    "TrustedKey",
    "Words",
    "join",
    "joinable",
    "require",
    "require_file",
    "sign",
    "signature_path",
]
