"""`aotkern pack` and `aotkern lock`: bundles on their way to consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bundle import Bundle, publish
from aotkern.cli import common
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.lock import Lock, file_name
from aotkern.trust.files import read_signatures
from aotkern.wheel import Project, wheel

_bundles = click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")


@click.command()
@_bundles
@click.option("--wheel", "as_wheel", is_flag=True, required=True, help="Make a wheel, which pip installs.")
@click.option("--name", required=True, help="Name of the distribution.")
@click.option("--version", required=True, help="Its version.")
@click.option("--entry", help="Name by which the bundles are found (default: that of the distribution).")
@click.option("--licence", required=True, help="SPDX expression of the licence of the kernels' sources.")
@click.option(
    "--licence-file", "files", multiple=True, type=click.Path(path_type=Path), help="Its text; once for each."
)
@click.option("--per-target", is_flag=True, help="One wheel for each target, named after it.")
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path("dist"), show_default=True, help="Folder.")
@common.json_option
def pack(
    bundles: tuple[Path, ...],
    as_wheel: bool,
    name: str,
    version: str,
    entry: str | None,
    licence: str,
    files: tuple[Path, ...],
    per_target: bool,
    out: Path,
    as_json: bool,
) -> NoReturn:
    """Pack BUNDLEs as a package that pip installs and `aotkern run --bundle NAME` or `aotkern.load(NAME)` finds.

    The package holds data alone: the bundles, the signature files beside them, their provenance and the licence of
    their sources.
    """
    del as_wheel  # the one form there is; named so that others can come
    opened = verified(bundles)
    signatures = {path.name: data for path in bundles if (data := read_signatures(path)) is not None}
    project = Project(name, version, entry or name, licence, {path.name: _read(path) for path in files})
    groups: dict[str, list[Bundle]] = {}
    for bundle in opened:
        groups.setdefault(bundle.manifest.target.slug if per_target else "", []).append(bundle)
    rows: list[dict[str, Any]] = []
    for slug, group in groups.items():
        part = replace(project, name=f"{name}-{slug}") if slug else project
        path = out / part.file
        files_of = [file_name(bundle) for bundle in group]
        mine = {file: signatures[file] for file in files_of if file in signatures}
        data = wheel(part, group, mine)
        _write(path, data)
        targets = [str(bundle.manifest.target) for bundle in group]
        rows.append({"file": str(path), "digest": str(Digest.of(data)), "targets": targets})
    document = {"schema": "aotkern.pack/1", "verdict": str(Verdict.CLEAN), "wheels": rows}
    text = "\n".join(f"{row['file']}: {', '.join(row['targets'])}" for row in rows)
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=text)


@click.command()
@_bundles
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path("aotkern.lock"), show_default=True)
@common.json_option
def lock(bundles: tuple[Path, ...], out: Path, as_json: bool) -> NoReturn:
    """Write the digests of BUNDLEs into a lock file.

    `aotkern verify --locked`, `aotkern run --locked` and `aotkern.install(locked=...)` refuse every other bundle.
    """
    found = Lock.of(verified(bundles))
    found.write(out)
    text = "\n".join([f"{out}: {len(found.pins)} bundles", *(f"{name} {pin.digest}" for name, pin in found.pins)])
    common.finish(Verdict.CLEAN, as_json=as_json, document=found.to_json(), text=text)


def verified(paths: Sequence[Path]) -> tuple[Bundle, ...]:
    """Open bundles and check every byte of them.

    Raises:
        InputError: One cannot be read.
        IntegrityError: One is damaged.
    """
    opened = tuple(map(Bundle.open, paths))
    for bundle in opened:
        bundle.verify()
    return opened


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError.one(str(path), "a licence file that can be read", error.strerror or str(error)) from error


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish(path, data)
    except OSError as error:
        raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error
