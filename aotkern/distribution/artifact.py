"""The OCI documents: one image manifest for each bundle, one index for each tag. Values and bytes, no network.

    tag -> index      one entry for each name and target, with both as annotations
    entry -> manifest artifactType application/vnd.aotkern.bundle.v1, an empty config, and as layers
                      the bundle file, and its signature file where it has one

Signatures are a layer and not a referrer: every registry stores layers, and an image that was copied from one registry
to another by any tool still has them. The bundle's layer is the bundle file, byte for byte, so its digest is the digest
that was signed. Unknown fields of documents are ignored, as the specification asks; unknown media types are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aotkern import bundle as bundles
from aotkern.canonical import dumps, loads
from aotkern.digest import Digest
from aotkern.distribution.remote import Package, Wanted, signature_name
from aotkern.errors import IntegrityError, Problem, RemoteError
from aotkern.fields import Fields
from aotkern.trust import dsse

BUNDLE_TYPE = "application/vnd.aotkern.bundle.v1"
SIGNATURES_TYPE = "application/vnd.aotkern.signatures.v1"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

NAME, TARGET, CONTENT = "dev.aotkern.name", "dev.aotkern.target", "dev.aotkern.manifest"
TITLE = "org.opencontainers.image.title"

EMPTY = b"{}"
"""The config of every artifact, as the image specification lays down for artifacts without one."""

MAX_DOCUMENT = 4 << 20
MAX_ENTRIES = 10_000

_LAYER_LIMITS = {BUNDLE_TYPE: bundles.MAX_FILE, SIGNATURES_TYPE: dsse.MAX_BYTES}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A pointer to content: what it is, its digest and its size in bytes."""

    media_type: str
    digest: Digest
    size: int
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes, media_type: str, **annotations: str) -> Descriptor:
        """The descriptor of these bytes."""
        return cls(media_type, Digest.of(data), len(data), annotations=annotations)

    @property
    def identity(self) -> tuple[str, str]:
        """Name and target of the bundle that an entry of an index is about."""
        return self.annotations.get(NAME, ""), self.annotations.get(TARGET, "")

    def to_json(self) -> dict[str, Any]:
        """The JSON object; empty fields are left out."""
        value: dict[str, Any] = {"mediaType": self.media_type, "digest": str(self.digest), "size": self.size}
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return value


@dataclass(frozen=True, slots=True)
class Artifact:
    """One bundle: the manifest's annotations, and its layers."""

    annotations: Mapping[str, str]
    bundle: Descriptor
    signatures: Descriptor | None

    @classmethod
    def of(cls, package: Package) -> Artifact:
        """The artifact of a bundle."""
        bundle = Descriptor.of(package.data, BUNDLE_TYPE, **{TITLE: package.file})
        signatures = None
        if package.signatures is not None:
            title = signature_name(package.file)
            signatures = Descriptor.of(package.signatures, SIGNATURES_TYPE, **{TITLE: title})
        facts = {NAME: package.name, TARGET: str(package.target), CONTENT: str(package.manifest)}
        return cls(facts, bundle, signatures)

    def to_bytes(self) -> bytes:
        """The canonical bytes of its manifest."""
        layers = [self.bundle, *([self.signatures] if self.signatures else [])]
        value = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": BUNDLE_TYPE,
            "config": Descriptor.of(EMPTY, EMPTY_TYPE).to_json(),
            "layers": [layer.to_json() for layer in layers],
            "annotations": dict(self.annotations),
        }
        return dumps(value).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Artifact:
        """Read a manifest.

        Raises:
            IntegrityError: Not the manifest of a bundle.
        """
        value, problems = _document(data, where, MANIFEST_TYPE)
        form = _form(value, where, ("artifactType", "layers"), ("annotations",), problems)
        if form.get("artifactType") != BUNDLE_TYPE:
            problems.append(Problem(f"{where}.artifactType", BUNDLE_TYPE, repr(form.get("artifactType"))[:80]))
        layers = _descriptors(form, "layers", problems)
        types = [layer.media_type for layer in layers]
        if types not in ([BUNDLE_TYPE], [BUNDLE_TYPE, SIGNATURES_TYPE]):
            problems.append(Problem(f"{where}.layers", "a bundle, and its signatures or nothing", str(types)[:200]))
        for layer in layers:
            limit = _LAYER_LIMITS.get(layer.media_type, 0)
            if layer.size > limit:
                problems.append(Problem(f"{where}.layers", f"at most {limit} bytes", f"{layer.size}"))
        annotations = form.texts("annotations", plain=True)
        if problems:
            raise IntegrityError(problems)
        return cls(annotations, layers[0], layers[1] if len(layers) > 1 else None)

    def entry(self) -> Descriptor:
        """What an index says about it."""
        annotations = {name: self.annotations[name] for name in (NAME, TARGET)}
        return replace(
            Descriptor.of(self.to_bytes(), MANIFEST_TYPE), artifact_type=BUNDLE_TYPE, annotations=annotations
        )


@dataclass(frozen=True, slots=True)
class Index:
    """What a tag points to: an entry for each name and target."""

    entries: tuple[Descriptor, ...] = ()

    def to_bytes(self) -> bytes:
        """The canonical bytes."""
        entries = [entry.to_json() for entry in self.entries]
        value = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "artifactType": BUNDLE_TYPE, "manifests": entries}
        return dumps(value).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Index:
        """Read an index.

        Raises:
            IntegrityError: Not an index of manifests.
        """
        value, problems = _document(data, where, INDEX_TYPE)
        form = _form(value, where, ("manifests",), (), problems)
        entries = _descriptors(form, "manifests", problems)
        for entry in entries:
            if entry.media_type != MANIFEST_TYPE or entry.size > MAX_DOCUMENT:
                expected = f"{MANIFEST_TYPE} of at most {MAX_DOCUMENT} bytes"
                problems.append(Problem(f"{where}.manifests", expected, f"{entry.media_type[:80]}, {entry.size}"))
        if problems:
            raise IntegrityError(problems)
        return cls(entries)

    def merged(self, added: Sequence[Descriptor]) -> Index:
        """This index with these entries; each takes the place of an older one of its name and target."""
        by_identity = {entry.identity: entry for entry in (*self.entries, *added)}
        return Index(tuple(by_identity[identity] for identity in sorted(by_identity)))

    def choose(self, wanted: Wanted, where: str) -> Descriptor:
        """The entry for a target: exactly that one, and no near relative.

        Raises:
            RemoteError: There is none, or there are several and no name was given; the error lists what is there.
        """
        fitting = [
            entry
            for entry in self.entries
            if entry.identity[1] == str(wanted.target) and wanted.name in (None, entry.identity[0])
        ]
        if len(fitting) != 1:
            offered = ", ".join(" ".join(entry.identity)[:120] for entry in self.entries[:20]) or "nothing"
            expected = f"one bundle {wanted.name or ''} for {wanted.target}".replace("  ", " ")
            raise RemoteError.one(where, expected, f"{len(fitting)} among: {offered}")
        return fitting[0]


def media_type_of(data: bytes, where: str) -> str:
    """What a document says it is.

    Raises:
        IntegrityError: Not a JSON object that says so.
    """
    value = loads(data, where)
    found = value.get("mediaType") if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise IntegrityError.one(f"{where}.mediaType", "a media type", repr(found)[:80])
    return found


def _document(data: bytes, where: str, media_type: str) -> tuple[dict[str, Any], list[Problem]]:
    value = loads(data, where)
    if not isinstance(value, dict):
        raise IntegrityError.one(where, "a JSON object", type(value).__name__)
    problems: list[Problem] = []
    for name, expected in (("schemaVersion", 2), ("mediaType", media_type)):
        if value.get(name) != expected:
            problems.append(Problem(f"{where}.{name}", str(expected), repr(value.get(name))[:80]))
    # A document that is an index and a manifest at once reads differently for different readers.
    for name in {"layers", "config"} if media_type == INDEX_TYPE else {"manifests"}:
        if name in value:
            problems.append(Problem(where, f"no {name} in {media_type}", f"{name}"))
    return value, problems


def _form(
    value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...], problems: list[Problem]
) -> Fields:
    """These fields of an object that may have others."""
    there = value if isinstance(value, dict) else {}
    names = tuple(name for name in (*required, *optional) if name in required or name in there)
    return Fields({name: there[name] for name in names if name in there}, where, names, problems)


def _descriptors(form: Fields, name: str, problems: list[Problem]) -> tuple[Descriptor, ...]:
    value = form.get(name)
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        problems.append(Problem(f"{form.where}.{name}", f"a list of at most {MAX_ENTRIES}", repr(value)[:80]))
        return ()
    return tuple(_descriptor(item, f"{form.where}.{name}[{n}]", problems) for n, item in enumerate(value))


def _descriptor(value: object, where: str, problems: list[Problem]) -> Descriptor:
    form = _form(value, where, ("mediaType", "digest", "size"), ("artifactType", "annotations"), problems)
    digest = form.parsed("digest", Digest.parse) or Digest("")
    annotations = form.texts("annotations", plain=True)
    return Descriptor(form.text("mediaType"), digest, form.count("size"), form.label("artifactType"), annotations)
