"""The trust file: whose word counts for which bundles, from when until when. Read from TOML; no cryptography.

    version = 1
    revoked = []                       # digests of bundle files, manifests or statements that nobody's word makes good

    [[key]]
    name = "release-2026"
    id = "sha256:..."                  # digest of the public key: a slip of the pen is noticed
    public = "MCowBQYDK2VwAyEA..."     # SubjectPublicKeyInfo in base64, the middle line of a public PEM file
    from = 2026-01-01T00:00:00Z
    until = 2027-01-01T00:00:00Z       # keys are rotated by listing the next one with an overlap

    [[rule]]
    bundle = "aotkern"                 # `*` stands for any characters
    target = "hip:*"
    keys = ["release-2026"]
    threshold = 1                      # so many different keys must have signed one and the same statement
    sequence = 0                       # older releases are refused
    audits = ["identity"]              # reports that the statement must list, all of that kind clean
    max_days = 90                      # may be left out: the statement must expire, and at most so many days from now

The first rule that fits a bundle's name and target decides; a bundle that none fits is refused. Every other field is
required, so that nothing is trusted by default; unknown fields are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aotkern import tomlfile
from aotkern.digest import Digest
from aotkern.errors import InputError, Problem
from aotkern.fields import Fields
from aotkern.target import Target
from aotkern.trust.keys import PublicKey

VERSION = 1


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key whose word may count.

    Attributes:
        name: For people, and for the rules of the file.
        public: The key.
        start: Signatures count from this moment ...
        end: ... until just before this one. Both are compared with the time of the check, because nothing proves when
            a signature was made.
    """

    name: str
    public: PublicKey
    start: datetime
    end: datetime

    def refusal(self, now: datetime) -> str | None:
        """Why this key does not count now, or None when it does."""
        if now < self.start:
            return f"key {self.name} does not count before {self.start.isoformat()}"
        if now >= self.end:
            return f"key {self.name} has not counted since {self.end.isoformat()}"
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """What bundles of some names and targets need.

    Attributes:
        bundle: Pattern for the name.
        target: Pattern for the full spelling of the target.
        keys: Ids of the keys that count.
        threshold: How many of them must have signed one statement.
        sequence: The lowest sequence number that is accepted.
        audits: Kinds of audit of which the statement must list reports, all of them clean.
        max_days: The statement must expire, and at most so many days after the check; None asks for no end.
    """

    bundle: str
    target: str
    keys: tuple[Digest, ...]
    threshold: int
    sequence: int
    audits: tuple[str, ...]
    max_days: int | None = None

    def fits(self, name: str, target: Target) -> bool:
        """Whether this rule is about such a bundle."""
        return fnmatchcase(name, self.bundle) and fnmatchcase(str(target), self.target)


@dataclass(frozen=True, slots=True)
class Trust:
    """The content of a trust file.

    Attributes:
        keys: Every key, by id.
        rules: In the order of the file.
        revoked: Digests of files, manifests or statements that are refused whoever signed them.
    """

    keys: Mapping[Digest, TrustedKey]
    rules: tuple[Rule, ...]
    revoked: frozenset[Digest]

    @classmethod
    def read(cls, path: Path) -> Trust:
        """Read a trust file.

        Raises:
            InputError: The file cannot be read, or anything in it is wrong; all problems at once.
        """
        return cls.from_values(tomlfile.read(path, "a trust file"), str(path))

    @classmethod
    def parse(cls, data: bytes, where: str) -> Trust:
        """As `read`, from bytes."""
        return cls.from_values(tomlfile.parse(data, where), where)

    @classmethod
    def from_values(cls, value: Mapping[str, Any], where: str) -> Trust:
        """As `read`, from parsed TOML."""
        if wrong := tomlfile.version_problems(value, where, VERSION):
            raise InputError(wrong)
        problems: list[Problem] = []
        form = Fields(dict(value), where, ("version", "revoked", "key", "rule"), problems)
        keys = tuple(map(_key, form.items("key", ("name", "id", "public", "from", "until"))))
        by_name = {key.name: key.public.id for key in keys}
        if len(by_name) != len(keys) or len(set(by_name.values())) != len(keys):
            problems.append(Problem(f"{where}.key", "each name and each key once", "one more than once"))
        names = ("bundle", "target", "keys", "threshold", "sequence", "audits")
        rules = tuple(_rule(row, by_name) for row in form.items("rule", names, optional=("max_days",)))
        if not rules:
            problems.append(Problem(f"{where}.rule", "at least one rule", "none"))
        revoked = frozenset(_digest(text, f"{where}.revoked", problems) for text in _texts(form, "revoked"))
        if problems:
            raise InputError(problems)
        return cls({key.public.id: key for key in keys}, rules, revoked)

    def rule(self, name: str, target: Target) -> Rule | None:
        """The rule that decides about a bundle, or None when none fits."""
        return next((rule for rule in self.rules if rule.fits(name, target)), None)


def _key(form: Fields) -> TrustedKey:
    public = form.parsed("public", PublicKey.parse) or PublicKey(b"")
    stated = form.parsed("id", Digest.parse)
    start, end = _moment(form, "from"), _moment(form, "until")
    if public.der and stated and stated != public.id:
        form.problems.append(Problem(f"{form.where}.id", f"the digest of the key, {public.id}", str(stated)))
    if start >= end and _NEVER not in (start, end):
        form.problems.append(Problem(f"{form.where}.until", f"a time after {start.isoformat()}", end.isoformat()))
    return TrustedKey(form.text("name"), public, start, end)


def _rule(form: Fields, by_name: Mapping[str, Digest]) -> Rule:
    names = _texts(form, "keys")
    unknown = [name for name in names if name not in by_name]
    if unknown or len(set(names)) != len(names):
        found = ", ".join(map(repr, unknown))[:200] or "a name twice"
        form.problems.append(Problem(f"{form.where}.keys", "names of keys of this file, each once", found))
    threshold = form.count("threshold")
    if not 0 < threshold <= len(names):
        expected = f"from 1 to the {len(names)} keys of the rule"
        form.problems.append(Problem(f"{form.where}.threshold", expected, str(threshold)))
    return Rule(
        bundle=_pattern(form, "bundle"),
        target=_pattern(form, "target"),
        keys=tuple(by_name[name] for name in names if name in by_name),
        threshold=threshold,
        sequence=form.count("sequence"),
        audits=_texts(form, "audits"),
        max_days=_max_days(form),
    )


def _max_days(form: Fields) -> int | None:
    if not form.has("max_days"):
        return None
    days = form.count("max_days", bits=16)
    if days == 0:
        form.problems.append(Problem(f"{form.where}.max_days", "1 day or more", "0"))
    return days


def _pattern(form: Fields, name: str) -> str:
    """A text in which `*` is the only special character, and stands once at most."""
    text = form.text(name)
    if text.count("*") > 1 or set(text) & set("?[]") or len(text) > 200:
        form.problems.append(Problem(f"{form.where}.{name}", "a name with at most one `*`", repr(text)[:100]))
    return text


def _moment(form: Fields, name: str) -> datetime:
    value: Any = form.get(name)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if form.has(name):
        found = repr(value)[:60]
        form.problems.append(Problem(f"{form.where}.{name}", "a date and time with its offset (a final Z)", found))
    return _NEVER


def _texts(form: Fields, name: str) -> tuple[str, ...]:
    value = form.get(name)
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    if form.has(name):
        form.problems.append(Problem(f"{form.where}.{name}", "a list of texts", repr(value)[:100]))
    return ()


def _digest(text: str, where: str, problems: list[Problem]) -> Digest:
    try:
        return Digest.parse(text, where)
    except InputError as error:
        problems.extend(error.problems)
        return Digest("")


_NEVER = datetime.fromisoformat("0001-01-01T00:00:00+00:00")
"""Stands in for a time that could not be read; a problem was noted."""
