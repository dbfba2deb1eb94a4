"""What a signer says about a bundle: an in-toto Statement (version 1) with a predicate of aotkern's own.

    subject        file name and SHA-256 of the bundle
    predicateType  https://aotkern.dev/bundle/v2 (a name, not an address: nothing is ever fetched from it)
    predicate
      name         of the bundle, the NAME of NAME.TARGET.aotk
      target       that every code object in it is for
      sequence     a number that grows with each release of this name and target
      expires      the moment from which the statement counts no more, or an empty text
      release      file name and digest of every bundle that was signed together with this one, itself included
      manifest     digest of the manifest: the identity of the content, whatever compressed it
      toolchain    what compiled it
      sources      digest of each kernel's source with everything it uses
      provenance   revision and state of the sources, as the bundle states them
      audits       kind, verdict and digest of each report that the signer had before them

All but `sequence`, `expires`, `release` and `audits` follow from the bundle, and `mismatches` holds a statement
against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from aotkern import bundle as bundles
from aotkern.bundle import Bundle
from aotkern.canonical import dumps, loads
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, TrustError
from aotkern.fields import Fields
from aotkern.target import Target

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://aotkern.dev/bundle/v2"

_REPORT = re.compile(r"aotkern\.([a-z]+)/1")
_VERDICTS = ("clean", "findings", "could not tell")
_PREDICATE = (
    "name",
    "target",
    "sequence",
    "expires",
    "release",
    "manifest",
    "toolchain",
    "sources",
    "provenance",
    "audits",
)
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
"""The one spelling of a time: seconds, in UTC."""


@dataclass(frozen=True, slots=True, order=True)
class Audit:
    """That a signer had this report about the bundle.

    Attributes:
        kind: `identity`, `resources`, ...: the middle of the report's schema name.
        verdict: As the report states it: `clean`, `findings` or `could not tell`.
        report: Digest of the report's bytes.
    """

    kind: str
    verdict: str
    report: Digest


@dataclass(frozen=True, slots=True)
class Words:
    """What a signer says of a bundle beside what follows from the bundle itself.

    Attributes:
        sequence: The number of this release.
        audits: The reports that the signer had.
        expires: From when on the statement counts no more; None for a statement without end.
        release: File name and digest of the bundles that are signed together with this one.
    """

    sequence: int
    audits: tuple[Audit, ...] = ()
    expires: datetime | None = None
    release: Mapping[str, Digest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    """One signer's (or several signers' common) words about one bundle file; the fields are in the module's text."""

    file: str
    digest: Digest
    name: str
    target: Target
    sequence: int
    expires: datetime | None
    release: Mapping[str, Digest]
    manifest: Digest
    toolchain: Mapping[str, str]
    sources: Mapping[str, str]
    provenance: Mapping[str, str]
    audits: tuple[Audit, ...]

    @classmethod
    def about(cls, bundle: Bundle, file: str, words: Words) -> Statement:
        """The statement that follows from a bundle in a file of this name and a signer's words.

        Raises:
            InputError: The file name is not `NAME.TARGET.aotk` with the bundle's own target.
        """
        manifest = bundle.manifest
        return cls(
            file=file,
            digest=bundle.digest,
            name=name_of(file, manifest.target),
            target=manifest.target,
            sequence=words.sequence,
            expires=words.expires,
            release={**words.release, file: bundle.digest},
            manifest=manifest.digest,
            toolchain=dict(manifest.toolchain),
            sources={kernel.name: str(kernel.source) for kernel in manifest.kernels},
            provenance=dict(bundle.provenance),
            audits=tuple(sorted(set(words.audits))),
        )

    @property
    def id(self) -> Digest:
        """The digest of the payload: by it, a trust file can revoke this one statement."""
        return Digest.of(self.to_bytes())

    @property
    def words(self) -> Words:
        """What does not follow from the bundle."""
        return Words(self.sequence, self.audits, self.expires, self.release)

    @classmethod
    def parse(cls, payload: bytes, where: str) -> Statement:
        """Read a payload whose signature somebody has verified.

        Raises:
            TrustError: Not a statement about one bundle, or of another version of the predicate.
        """
        problems: list[Problem] = []
        try:
            value = loads(payload, where)
        except IntegrityError as error:
            raise TrustError(error.problems) from None
        form = Fields(value, where, ("_type", "subject", "predicateType", "predicate"), problems)
        for name, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
            if form.get(name) != expected:
                problems.append(Problem(f"{where}.{name}", expected, repr(form.get(name))[:80]))
        subjects = form.items("subject", ("name", "digest"))
        if len(subjects) != 1:
            problems.append(Problem(f"{where}.subject", "one bundle", f"{len(subjects)}"))
        if problems:
            raise TrustError(problems)
        statement = _statement(subjects[0], Fields(form.get("predicate"), f"{where}.predicate", _PREDICATE, problems))
        if problems:
            raise TrustError(problems)
        if statement.to_bytes() != payload:
            raise TrustError.one(where, "a statement in canonical JSON", "another spelling")
        return statement

    def to_bytes(self) -> bytes:
        """The canonical payload."""
        predicate = {
            "name": self.name,
            "target": str(self.target),
            "sequence": self.sequence,
            "expires": write_moment(self.expires),
            "release": {file: str(digest) for file, digest in self.release.items()},
            "manifest": str(self.manifest),
            "toolchain": dict(self.toolchain),
            "sources": dict(self.sources),
            "provenance": dict(self.provenance),
            "audits": [[audit.kind, audit.verdict, str(audit.report)] for audit in self.audits],
        }
        value = {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": self.file, "digest": {"sha256": self.digest.hex}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
        return dumps(value).encode()

    def mismatches(self, bundle: Bundle, where: str) -> Iterator[Problem]:
        """Where the statement says something else than the bundle itself."""
        try:
            right = Statement.about(bundle, self.file, self.words)
        except InputError as error:
            yield from error.problems
            return
        held = ("digest", "name", "target", "release", "manifest", "toolchain", "sources", "provenance")
        for name in held:
            said, found = getattr(self, name), getattr(right, name)
            if said != found:
                yield Problem(f"{where}.{name}", f"what the bundle holds ({str(found)[:100]})", str(said)[:100])


def name_of(file: str, target: Target) -> str:
    """The NAME of a file `NAME.TARGET.aotk`.

    Raises:
        InputError: The file is called otherwise, or after another target.
    """
    ending = f".{target.slug}{bundles.SUFFIX}"
    name = file.removesuffix(ending)
    if name == file or not name or "/" in name:
        raise InputError.one(file, f"a file name such as NAME{ending}", repr(file)[:100])
    return name


def write_moment(moment: datetime | None) -> str:
    """The spelling of a time in a statement; an empty text for none."""
    return moment.astimezone(timezone.utc).strftime(_MOMENT) if moment else ""


def read_moment(text: str, where: str) -> datetime | None:
    """What `write_moment` wrote.

    Raises:
        InputError: Another spelling.
    """
    if not text:
        return None
    try:
        return datetime.strptime(text, _MOMENT).replace(tzinfo=timezone.utc)
    except ValueError:
        expected = "a time such as 2027-01-31T00:00:00Z, or an empty text"
        raise InputError.one(where, expected, repr(text)[:60]) from None


def audits(data: bytes, target: Target, where: str) -> tuple[Audit, ...]:
    """What a report of an audit (the JSON output of a command) says about a target.

    Of a document that holds several reports those count that are about this target, or about no target in particular;
    the document of a whole gate counts as `gate` and as each of its steps.

    Raises:
        InputError: Not a report of aotkern, or one about other targets only.
    """
    try:
        rows = tuple(_rows(json.loads(data)))
    except (ValueError, RecursionError) as error:
        raise InputError.one(where, "a report in JSON", str(error)[:100]) from None
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError.one(where, "a report: `schema` aotkern.KIND/1 and a `verdict`", repr(error)[:100]) from None
    digest = Digest.of(data)
    mine = tuple(Audit(kind, verdict, digest) for kind, verdict, about in rows if about in (None, str(target)))
    if not mine:
        raise InputError.one(where, f"a report about {target}", ", ".join(str(about) for _, _, about in rows)[:100])
    return mine


def _rows(value: Any) -> Iterator[tuple[str, str, str | None]]:
    """Kind, verdict and target of each report in a document; a document of another form is a `LookupError` or so."""
    kind, verdict = _REPORT.fullmatch(value["schema"]), value["verdict"]
    if kind is None or verdict not in _VERDICTS:
        raise LookupError(value["schema"], verdict)
    if kind[1] == "audit":
        for report in value["reports"]:
            yield from _rows(report)
        return
    yield kind[1], verdict, value.get("target")
    if kind[1] == "gate":
        for step in value["steps"]:
            if not isinstance(step["name"], str) or step["verdict"] not in _VERDICTS:
                raise LookupError(step["name"], step["verdict"])
            # A step that came to no report may have been about any target.
            yield step["name"], step["verdict"], (step["report"] or {}).get("target")


def _statement(subject: Fields, form: Fields) -> Statement:
    return Statement(
        file=subject.text("name"),
        digest=_subject_digest(subject),
        name=form.text("name"),
        target=form.parsed("target", Target.parse) or _NOWHERE,
        sequence=form.count("sequence"),
        expires=_expires(form),
        release=_release(form),
        manifest=form.parsed("manifest", Digest.parse) or Digest(""),
        toolchain=form.texts("toolchain"),
        sources=form.texts("sources"),
        provenance=form.texts("provenance"),
        audits=tuple(map(_audit, form.rows("audits", 3))),
    )


def _subject_digest(subject: Fields) -> Digest:
    form = Fields(subject.get("digest"), f"{subject.where}.digest", ("sha256",), subject.problems)
    return form.parsed("sha256", lambda text, where: Digest.parse(f"sha256:{text}", where)) or Digest("")


def _expires(form: Fields) -> datetime | None:
    try:
        return read_moment(form.label("expires"), f"{form.where}.expires")
    except InputError as error:
        form.problems.extend(error.problems)
        return None


def _release(form: Fields) -> dict[str, Digest]:
    release: dict[str, Digest] = {}
    for file, text in form.texts("release").items():
        try:
            release[file] = Digest.parse(text, f"{form.where}.release[{file[:80]!r}]")
        except InputError as error:
            form.problems.extend(error.problems)
    return release


def _audit(row: Fields) -> Audit:
    return Audit(row.text("0"), row.text("1"), row.parsed("2", Digest.parse) or Digest(""))


_NOWHERE = Target.parse("gfx942")
"""Stands in for a target that could not be read; never leaves this module, because a problem was noted."""
