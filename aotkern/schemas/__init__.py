"""The JSON schemas (draft 2020-12) of everything that aotkern prints for machines, one file for each kind of document.

`load` completes a schema with those that it refers to, so that a validator needs nothing but its answer. Fields that a
schema does not name are errors: a consumer may rely on knowing all of them.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from aotkern.errors import InputError

KINDS = (
    "audit",
    "bench",
    "build",
    "cache",
    "contents",
    "coverage",
    "doctor",
    "gate",
    "identity",
    "jit",
    "jit-budget",
    "jit-event",
    "listing",
    "lock",
    "manifest",
    "numerics",
    "pack",
    "policy",
    "pull",
    "push",
    "record",
    "replay",
    "reproducible",
    "resources",
    "run",
    "show",
    "sign",
    "static",
    "trace",
    "variant",
    "verify",
)
"""The kinds of documents; `aotkern.KIND/1` is the `schema` field of each but lock, manifest, policy and trace."""

_USES = {
    "audit": ("identity", "resources"),
    "gate": ("contents", "coverage", "identity", "jit", "numerics", "replay", "reproducible", "resources"),
    "show": ("manifest",),
    "variant": ("manifest",),
}


def load(kind: str) -> dict[str, Any]:
    """The schema of one of `KINDS`, whole.

    Raises:
        InputError: There is no such kind.
    """
    if kind not in KINDS:
        raise InputError.one("schema", f"one of {', '.join(KINDS)}", repr(kind))
    schema: dict[str, Any] = json.loads(files(__name__).joinpath(f"{kind}.schema.json").read_text("utf-8"))
    for used in _USES.get(kind, ()):
        schema.setdefault("$defs", {})[used] = load(used)
    return schema
