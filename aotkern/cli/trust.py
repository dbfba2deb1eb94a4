"""`aotkern keygen` and `aotkern sign`."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bundle import Bundle
from aotkern.cli import common
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, TrustError
from aotkern.trust import Audit, Signed, SigningKey, Statement, Trust, Words, joinable
from aotkern.trust import join as join_statement
from aotkern.trust import sign as sign_bundles
from aotkern.trust.decision import Vouched
from aotkern.trust.statement import audits, write_moment

_file = click.Path(path_type=Path)

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
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=_file)
@click.option("--key", type=_file, help="A private key in PEM.")
@_passphrase_option
@click.option("--audit", "reports", type=_file, multiple=True, help="A report that an audit gave as JSON.")
@click.option("--sequence", type=click.IntRange(0), help="Number of this release; default: the time.")
@click.option("--expires", "days", type=click.IntRange(1, 36_500), help="Days for which the statement counts.")
@click.option("--fresh", is_flag=True, help="Drop every other statement that lies beside the bundles.")
@click.option("--list", "listing", is_flag=True, help="Show the statements that --join could join; signs nothing.")
@click.option("--join", metavar="STATEMENT", help="Sign this statement (sha256:...), which another signer made.")
@click.option("--trust", metavar="TRUSTFILE", type=_file, help="Whose statements --list and --join take as genuine.")
@common.json_option
def sign(
    bundles: tuple[Path, ...],
    key: Path | None,
    passphrase_file: Path | None,
    reports: tuple[Path, ...],
    sequence: int | None,
    days: int | None,
    fresh: bool,
    listing: bool,
    join: str | None,
    trust: Path | None,
    as_json: bool,
) -> NoReturn:
    """Sign BUNDLEs as one release after checking every byte of them; signatures go into BUNDLE.sig.

    The statement names the bundle's digest, target, toolchain, sources and revision, the other bundles of the release,
    and the verdict of each --audit report. Nothing is taken from a signature file that lies there: to stand behind
    another signer's words, read them with --list and name them with --join; both take only what a key of the trust
    file has signed. Exit code 1: a bundle is damaged, or a statement is not vouched for or not so.
    """
    now = datetime.now(timezone.utc)
    _check_options(key, join, trust, listing=listing, own=bool(reports or sequence or days or fresh))
    try:
        if listing or join:
            trusted = Trust.read(_given(trust))
            offered = [(path, row) for path in bundles for row in joinable(path, trusted, now)]
        if listing:
            _finish_listing(offered, as_json=as_json)
        private = SigningKey.from_pem(_read(_given(key)), _passphrase(passphrase_file), str(key))
        if join:
            digest = Digest.parse(join, "--join")
            (bundle,) = bundles if len(bundles) == 1 else (None,)
            if bundle is None:
                raise InputError.one("--join", "one bundle", f"{len(bundles)}")
            done: tuple[Signed, ...] = (join_statement(bundle, private, trusted, now, digest),)
        else:
            number = int(now.timestamp()) if sequence is None else sequence
            expires = now + timedelta(days=days) if days else None
            heard = _audits(bundles, reports)
            words = {path: Words(number, heard[path], expires) for path in bundles}
            done = sign_bundles(words, private, now, fresh=fresh)
    except (IntegrityError, TrustError) as error:
        refusal = {
            "schema": "aotkern.sign/1",
            "verdict": str(Verdict.FINDINGS),
            "problems": common.problems(error.problems),
        }
        common.finish(Verdict.FINDINGS, as_json=as_json, document=refusal, text=common.refusals(error))
    document = {
        "schema": "aotkern.sign/1",
        "verdict": str(Verdict.CLEAN),
        "key": str(private.public.id),
        "signed": [_row(signed) for signed in done],
    }
    text = "\n".join(_line(signed) for signed in done)
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=text)


def _check_options(key: Path | None, join: str | None, trust: Path | None, *, listing: bool, own: bool) -> None:
    """Which options go together."""
    theirs = listing or join is not None
    problems: list[Problem] = []
    if key is None and not listing:
        problems.append(Problem("--key", "a private key", "none"))
    if theirs and trust is None:
        problems.append(Problem("--trust", "a trust file that says whose statements are genuine", "none"))
    if theirs and own:
        found = "words of one's own (--audit, --sequence, --expires, --fresh)"
        problems.append(Problem("--list, --join", "another signer's words as they are", found))
    if trust is not None and not theirs:
        problems.append(Problem("--trust", "--list or --join beside it", "neither"))
    if problems:
        raise InputError(problems)


def _given(path: Path | None) -> Path:
    if path is None:  # pragma: no cover - `_check_options` has asked
        raise InputError.one("option", "a file", "none")
    return path


def _describe(statement: Statement) -> str:
    """What stands in a statement, in one line."""
    heard = ", ".join(f"{audit.kind} {audit.verdict}" for audit in statement.audits) or "no audits"
    expires = f", expires {write_moment(statement.expires)}" if statement.expires else ""
    others = len(statement.release) - 1
    release = f", released with {others} other bundle{'s' if others > 1 else ''}" if others else ""
    return f"sequence {statement.sequence}, {heard}{expires}{release}"


def _finish_listing(offered: list[tuple[Path, Vouched]], *, as_json: bool) -> NoReturn:
    rows = [
        {
            "file": str(path),
            "statement": str(row.statement.id),
            "sequence": row.statement.sequence,
            "expires": write_moment(row.statement.expires),
            "audits": _audit_rows(row.statement),
            "release": {file: str(digest) for file, digest in row.statement.release.items()},
            "signers": list(row.signers),
        }
        for path, row in offered
    ]
    document = {"schema": "aotkern.sign/1", "verdict": str(Verdict.CLEAN), "statements": rows}
    lines = [
        f"{path}: {row.statement.id} by {' and '.join(row.signers)}: {_describe(row.statement)}"
        for path, row in offered
    ]
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text="\n".join(lines))


def _audit_rows(statement: Statement) -> list[dict[str, str]]:
    return [{"kind": audit.kind, "verdict": audit.verdict, "report": str(audit.report)} for audit in statement.audits]


def _row(signed: Signed) -> dict[str, Any]:
    statement = signed.statement
    return {
        "file": str(signed.path),
        "signatures": signed.signatures,
        "statement": str(statement.id),
        "sequence": statement.sequence,
        "expires": write_moment(statement.expires),
        "digest": str(statement.digest),
        "audits": _audit_rows(statement),
    }


def _line(signed: Signed) -> str:
    statement, several = signed.statement, "s" if signed.signatures > 1 else ""
    return (
        f"signed {statement.file}: {_describe(statement)}, {statement.digest}\n"
        f"{signed.path}: {signed.signatures} signature{several} under this statement, {statement.id}"
    )


def _audits(bundles: tuple[Path, ...], reports: tuple[Path, ...]) -> dict[Path, tuple[Audit, ...]]:
    """What the reports say about the target of each bundle; a report about none of them is an error."""
    heard: dict[Path, tuple[Audit, ...]] = dict.fromkeys(bundles, ())
    targets = {path: Bundle.open(path).manifest.target for path in bundles} if reports else {}
    for report in reports:
        data = _read(report)
        problems: list[Problem] = []
        for path, target in targets.items():
            try:
                heard[path] += audits(data, target, str(report))
            except InputError as error:
                problems += error.problems
        if len(problems) >= len(bundles):
            raise InputError(problems)
    return heard
