"""A lock file: the digests of the bundles that a consumer has decided to use, and nothing else.

    {"bundles": {"decode.gfx942.aotk": {"digest": "sha256:...", "manifest": "sha256:...", "target": "hip:gfx942"}},
     "format": "aotkern.lock", "version": 1}

A bundle is recognised by its file name. Its digest must be the locked one; a bundle that is not in the file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotkern.bundle import Bundle, publish
from aotkern.canonical import loads
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem
from aotkern.fields import Fields
from aotkern.target import Target

FORMAT = "aotkern.lock"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Pin:
    """One locked bundle.

    Attributes:
        digest: Of the file.
        manifest: Of its manifest, which is the same for every build of the same content.
        target: What it is for.
    """

    digest: Digest
    manifest: Digest
    target: Target


@dataclass(frozen=True, slots=True)
class Lock:
    """The locked bundles, by file name, sorted."""

    pins: tuple[tuple[str, Pin], ...]

    @classmethod
    def of(cls, bundles: Iterable[Bundle]) -> Lock:
        """Lock these bundles as they are.

        Raises:
            InputError: Two of them have the same file name.
        """
        pins: dict[str, Pin] = {}
        for bundle in bundles:
            name = file_name(bundle)
            pin = Pin(bundle.digest, bundle.manifest.digest, bundle.manifest.target)
            if pins.setdefault(name, pin) != pin:
                raise InputError.one(bundle.where, "bundles with different file names", f"a second {name}")
        return cls(tuple(sorted(pins.items())))

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock file.

        Raises:
            InputError: It cannot be read.
            IntegrityError: It is no lock file of this version.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError.one(str(path), "a lock file that can be read", error.strerror or str(error)) from error
        problems: list[Problem] = []
        form = Fields(loads(data, str(path)), str(path), ("format", "version", "bundles"), problems)
        if (form.get("format"), form.get("version")) != (FORMAT, VERSION):
            found = f"{form.get('format')} version {form.get('version')}"[:100]
            problems.append(Problem(f"{path}: format", f"{FORMAT} version {VERSION}", found))
        pins: dict[str, Pin] = {}
        for name, row in form.objects("bundles").items():
            digest, manifest = row.parsed("digest", Digest.parse), row.parsed("manifest", Digest.parse)
            target = row.parsed("target", Target.parse)
            if digest is None or manifest is None or target is None or len(row.names) != 3:
                problems.append(Problem(f"{path}: {name}", "digest, manifest and target", ", ".join(row.names)))
                continue
            pins[name] = Pin(digest, manifest, target)
        if problems:
            raise IntegrityError(problems)
        return cls(tuple(sorted(pins.items())))

    def to_json(self) -> dict[str, Any]:
        """The content of the file (schema `lock`)."""
        rows = {
            name: {"digest": str(pin.digest), "manifest": str(pin.manifest), "target": str(pin.target)}
            for name, pin in self.pins
        }
        return {"format": FORMAT, "version": VERSION, "bundles": rows}

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all.

        Raises:
            InputError: It cannot be written.
        """
        try:
            publish(path, (json.dumps(self.to_json(), indent=2, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error

    def problems(self, bundle: Bundle) -> tuple[Problem, ...]:
        """Why a bundle is not the locked one; nothing when it is."""
        name = file_name(bundle)
        pin = dict(self.pins).get(name)
        if pin is None:
            locked = ", ".join(known for known, _ in self.pins) or "nothing"
            return (Problem(bundle.where, f"a bundle in the lock file ({locked})", f"{name}, which is not in it"),)
        if pin.digest == bundle.digest:
            return ()
        same = " (with the same manifest)" if pin.manifest == bundle.manifest.digest else ""
        return (Problem(bundle.where, f"the locked digest {pin.digest}", f"{bundle.digest}{same}"),)

    def check(self, bundles: Iterable[Bundle]) -> None:
        """Refuse bundles that are not the locked ones.

        Raises:
            IntegrityError: With every problem.
        """
        problems = [problem for bundle in bundles for problem in self.problems(bundle)]
        if problems:
            raise IntegrityError(problems)


def file_name(bundle: Bundle) -> str:
    """The last part of where a bundle is."""
    return bundle.where.replace("\\", "/").rpartition("/")[2]
