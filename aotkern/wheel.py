"""Wheels that hold nothing but bundles: data that pip installs and the loader finds by entry point.

    DIST-VERSION-py3-none-any.whl
        PACKAGE/__init__.py, PACKAGE/NAME.TARGET.aotk, PACKAGE/NAME.TARGET.aotk.sig, PACKAGE/provenance.json
        DIST-VERSION.dist-info/{METADATA,WHEEL,entry_points.txt,licenses/...,RECORD}

The bytes depend on the content alone: entries are sorted, their times are fixed, and nothing is compressed again (code
objects are compressed in the bundle). Format: https://packaging.python.org/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aotkern import __version__
from aotkern.bundle import SIGNATURE_SUFFIX, Bundle
from aotkern.errors import InputError, Problem
from aotkern.lock import file_name

GROUP = "aotkern.bundles"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?(?:\+[a-z0-9.]+)?")
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Project:
    """What a wheel says of itself.

    Attributes:
        name: Name of the distribution.
        version: Its version.
        entry: The name by which the loader finds the bundles.
        licence: SPDX expression of the licence of the kernels' sources.
        licences: Licence files by name.
        summary: One line.
    """

    name: str
    version: str
    entry: str
    licence: str
    licences: Mapping[str, bytes] = field(default_factory=dict)
    summary: str = "GPU kernels built ahead of time by aotkern"

    def __post_init__(self) -> None:
        problems = []
        if not _NAME.fullmatch(self.name):
            problems.append(Problem("name", "a distribution's name", repr(self.name)))
        if not _VERSION.fullmatch(self.version):
            problems.append(Problem("version", "a version such as 1.2.0", repr(self.version)))
        if not _NAME.fullmatch(self.entry):
            problems.append(Problem("entry point", "a name", repr(self.entry)))
        if not self.licence.strip() or "\n" in self.licence:
            problems.append(Problem("licence", "an SPDX expression", repr(self.licence)))
        if problems:
            raise InputError(problems)

    @property
    def package(self) -> str:
        """The importable name."""
        return re.sub(r"[-_.]+", "_", self.name).lower()

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.package}-{self.version}-py3-none-any.whl"


def wheel(project: Project, bundles: Sequence[Bundle], signatures: Mapping[str, bytes] | None = None) -> bytes:
    """The wheel, as bytes.

    Args:
        project: What it says of itself.
        bundles: What it holds.
        signatures: The signature files of bundles, by the bundle's file name: who installs the wheel can ask for them.

    Raises:
        InputError: There is no bundle, two of them have the same file name, or a signature file is about none.
    """
    names = [file_name(bundle) for bundle in bundles]
    if not bundles or len(set(names)) != len(names):
        raise InputError.one("bundles", "one or more, with different file names", ", ".join(names) or "none")
    beside = {f"{name}{SIGNATURE_SUFFIX}": data for name, data in (signatures or {}).items() if name in names}
    if len(beside) != len(signatures or {}):
        raise InputError.one("signatures", f"signatures of {', '.join(names)}", ", ".join(signatures or {}))
    info = f"{project.package}-{project.version}.dist-info"
    files: dict[str, bytes] = {
        f"{project.package}/__init__.py": f'"""Bundles for aotkern.load({project.entry!r})."""\n'.encode(),
        f"{project.package}/provenance.json": _json([_provenance(bundle) for bundle in bundles]),
        **{f"{project.package}/{name}": bundle.content for name, bundle in zip(names, bundles, strict=True)},
        **{f"{project.package}/{name}": data for name, data in beside.items()},
        f"{info}/METADATA": _metadata(project),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: aotkern {__version__}\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n".encode(),
        f"{info}/entry_points.txt": f"[{GROUP}]\n{project.entry} = {project.package}\n".encode(),
        **{f"{info}/licenses/{name}": text for name, text in project.licences.items()},
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        # The specification asks for the dist-info folder at the end.
        for name in sorted(files, key=lambda name: (name.startswith(info), name.endswith("RECORD"), name)):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _record(files: Mapping[str, bytes], itself: str) -> bytes:
    """The list of all files, as CSV: a name may hold a comma or a quotation mark."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows((name, _hash(data), len(data)) for name, data in sorted(files.items()))
    rows.writerow((itself, "", ""))
    return text.getvalue().encode()


def _metadata(project: Project) -> bytes:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project.name}",
        f"Version: {project.version}",
        f"Summary: {project.summary}",
        f"License-Expression: {project.licence}",
        *(f"License-File: {name}" for name in sorted(project.licences)),
        "Requires-Python: >=3.10",
        "Requires-Dist: aotkern",
    ]
    return ("\n".join(lines) + "\n").encode()


def _provenance(bundle: Bundle) -> dict[str, Any]:
    """What a bundle was made from: facts of its build, and the digest of each kernel's source."""
    manifest = bundle.manifest
    return {
        "file": file_name(bundle),
        "digest": str(bundle.digest),
        "manifest": str(manifest.digest),
        "target": str(manifest.target),
        "toolchain": dict(manifest.toolchain),
        "environment": dict(manifest.environment),
        "build": dict(bundle.provenance),
        "sources": {kernel.name: str(kernel.source) for kernel in manifest.kernels},
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
