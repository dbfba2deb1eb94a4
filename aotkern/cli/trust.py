"""`aotkern keygen` and `aotkern sign`."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bundle import Bundle
from aotkern.cli import common
from aotkern.errors import InputError, IntegrityError, TrustError
from aotkern.trust import SigningKey
from aotkern.trust import sign as sign_bundle
from aotkern.trust.statement import Audit, audits

_passphrase_option = click.option(
    "--passphrase-file", type=click.Path(path_type=Path), help="A file whose first line encrypts the private key."
)


@click.command()
@click.argument("key", type=click.Path(path_type=Path))
@_passphrase_option
@click.option("--name", help="Name of the key in trust files; default: that of the file.")
@click.option("--days", type=click.IntRange(1), default=365, show_default=True, help="How long it is to count.")
def keygen(key: Path, passphrase_file: Path | None, name: str | None, days: int) -> None:
    """Make an ed25519 key: KEY, readable by its owner only, and KEY.pub.

    Prints the table by which a trust file takes the key in. An existing file is never overwritten.
    """
    private = SigningKey.generate()
    public = key.with_name(key.name + ".pub")
    if public.exists():
        raise InputError.one(str(public), "nothing there yet", "a file")
    _create(key, private.to_pem(_passphrase(passphrase_file)), 0o600)
    _create(public, private.public.pem.encode(), 0o644)
    start = datetime.now(timezone.utc).replace(microsecond=0)
    end = datetime.fromtimestamp(start.timestamp() + days * 86_400, timezone.utc)
    fields = {"name": name or key.name, "id": str(private.public.id), "public": str(private.public)}
    # A basic string of TOML escapes as JSON does.
    rows = [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
    rows += [f"{field} = {moment:%Y-%m-%dT%H:%M:%SZ}" for field, moment in (("from", start), ("until", end))]
    click.echo("\n".join(["[[key]]", *rows]))


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        # O_EXCL follows no link and overwrites nothing; the mode holds from the first moment.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise InputError.one(str(path), "a new file that can be written", error.strerror or str(error)) from error


def _passphrase(path: Path | None) -> bytes | None:
    if path is None:
        return None
    first = _read(path).split(b"\n", 1)[0].rstrip(b"\r")
    if not first:
        raise InputError.one(str(path), "a passphrase in the first line", "an empty line")
    return first


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError.one(str(path), "a file that can be read", error.strerror or str(error)) from error


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True, help="A private key in PEM.")
@_passphrase_option
@click.option(
    "--audit", "reports", type=click.Path(path_type=Path), multiple=True, help="A report that an audit gave as JSON."
)
@click.option("--sequence", type=click.IntRange(0, (1 << 48) - 1), help="Number of this release; default: the time.")
@common.json_option
def sign(
    bundle: Path,
    key: Path,
    passphrase_file: Path | None,
    reports: tuple[Path, ...],
    sequence: int | None,
    as_json: bool,
) -> NoReturn:
    """Sign BUNDLE after checking every byte of it; the signature goes into BUNDLE.sig.

    The statement names the bundle's digest, target, toolchain, sources and revision, and the verdict of each --audit
    report. Without --audit and --sequence a statement that is there already gets one more signature. Exit code 1: the
    bundle is damaged, or what others said of it is not so.
    """
    private = SigningKey.from_pem(_read(key), _passphrase(passphrase_file), str(key))
    try:
        signed = sign_bundle(bundle, private, sequence, _audits(bundle, reports), int(time.time()))
    except (IntegrityError, TrustError) as error:
        refusal = {
            "schema": "aotkern.sign/1",
            "verdict": str(Verdict.FINDINGS),
            "problems": common.problems(error.problems),
        }
        common.finish(Verdict.FINDINGS, as_json=as_json, document=refusal, text=common.refusals(error))
    statement = signed.statement
    document = {
        "schema": "aotkern.sign/1",
        "verdict": str(Verdict.CLEAN),
        "file": str(signed.path),
        "key": str(private.public.id),
        "signatures": signed.signatures,
        "sequence": statement.sequence,
        "digest": str(statement.digest),
        "audits": [{"kind": a.kind, "verdict": a.verdict, "report": str(a.report)} for a in statement.audits],
    }
    heard = ", ".join(f"{audit.kind} {audit.verdict}" for audit in statement.audits) or "no audits"
    line = (
        f"signed {bundle}: sequence {statement.sequence}, {heard}, {statement.digest}\n"
        f"{signed.path}: {signed.signatures} signature{'s' if signed.signatures > 1 else ''} under this statement"
    )
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=line)


def _audits(bundle: Path, reports: tuple[Path, ...]) -> list[Audit]:
    if not reports:
        return []
    target = Bundle.open(bundle).manifest.target
    return [audit for report in reports for audit in audits(_read(report), target, str(report))]
