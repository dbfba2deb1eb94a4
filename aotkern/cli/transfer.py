"""`aotkern push` and `aotkern pull`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.cli import common
from aotkern.distribution import Remote, Wanted, package
from aotkern.distribution import pull as pull_bundle
from aotkern.distribution import push as push_bundles
from aotkern.errors import InputError, IntegrityError, MissingToolError, ProblemsError, TrustError
from aotkern.target import Target
from aotkern.trust import Memory, Trust

_plain_option = click.option("--plain-http", is_flag=True, help="Reach the registry by http, without encryption.")


def _trust_option(text: str) -> Callable[[Any], Any]:
    return click.option("--require-signature", "trust", metavar="TRUSTFILE", type=click.Path(path_type=Path), help=text)


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.argument("to", metavar="TO")
@_trust_option("Refuse to push what this trust file would refuse to use.")
@_plain_option
@common.json_option
def push(bundles: tuple[Path, ...], to: str, trust: Path | None, plain_http: bool, as_json: bool) -> NoReturn:
    """Push BUNDLEs with their signatures TO a registry (HOST/REPOSITORY:TAG) or a store (any fsspec URL).

    Every byte of them is checked first. What a tag holds for other names and targets stays. Needs aotkern[oci], or
    aotkern[stores]. Credentials are those of `docker login`.
    """
    remote, now = _remote(to, plain=plain_http), datetime.now(timezone.utc)
    read = Trust.read(trust) if trust else None
    try:
        packages = [package(path, read, now) for path in bundles]
    except (IntegrityError, TrustError) as error:
        _refused("push", error, as_json=as_json)
    address = push_bundles(remote, packages)
    rows = [{"file": item.file, "target": str(item.target), "signed": item.signatures is not None} for item in packages]
    document = {"schema": "aotkern.push/1", "verdict": str(Verdict.CLEAN), "address": address, "bundles": rows}
    lines = [f"pushed {item.file}{'' if item.signatures else ', unsigned'}" for item in packages]
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text="\n".join([*lines, f"to {address}"]))


@click.command()
@click.argument("source", metavar="FROM")
@click.option("--target", "-t", required=True, help="A target such as gfx942, gfx950 or cuda:90.")
@click.option("--name", help="Name of the bundle; needed where there are several for the target.")
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path(), help="Folder for it; default: here.")
@_trust_option("Accept only what the keys of this trust file vouch for.")
@click.option("--unsigned", is_flag=True, help="Accept any sound bundle, whoever made it.")
@click.option("--allow-older", is_flag=True, help="Accept an older release than one that was accepted before.")
@click.option(
    "--memory",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the newest accepted releases are written down (default: aotkern/accepted.json in the user's state).",
)
@_plain_option
@common.json_option
def pull(
    source: str,
    target: str,
    name: str | None,
    out: Path,
    trust: Path | None,
    unsigned: bool,
    allow_older: bool,
    memory: Path | None,
    plain_http: bool,
    as_json: bool,
) -> NoReturn:
    """Pull the bundle for one target FROM a registry (HOST/REPOSITORY, with :TAG or @sha256:DIGEST) or a store.

    An interrupted download goes on where it ended. Nothing gets its name before all of it was checked; exit code 1
    means that it was refused, and that what was in place before is still there.
    """
    if (trust is None) != unsigned:
        found = "both" if unsigned else "neither"
        raise InputError.one("--require-signature, --unsigned", "one of the two", found)
    wanted = Wanted(Target.parse(target, "--target"), name)
    read = Trust.read(trust) if trust else None
    remote = _remote(source, plain=plain_http)
    try:
        now = datetime.now(timezone.utc)
        kept = Memory(memory or _state_folder() / "accepted.json") if read else None
        done = pull_bundle(remote, wanted, out, read, now, older=allow_older, memory=kept)
    except (IntegrityError, TrustError) as error:
        _refused("pull", error, as_json=as_json)
    signers = list(done.approval.signers) if done.approval else []
    document = {
        "schema": "aotkern.pull/1",
        "verdict": str(Verdict.CLEAN),
        "address": done.address,
        "file": str(done.path),
        "digest": str(done.digest),
        "signers": signers,
        "changed": done.changed,
    }
    words = f"signed by {' and '.join(signers)}" if signers else "no signature was asked for"
    state = "pulled" if done.changed else "unchanged"
    text = f"{state} {done.path}: {words}, {done.digest}\nfrom {done.address}"
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=text)


def _state_folder() -> Path:
    """Where this platform keeps what a user's programs must remember."""
    from platformdirs import user_state_path  # noqa: PLC0415 - for those who pull

    return user_state_path("aotkern", appauthor=False)


def _refused(kind: str, error: ProblemsError, *, as_json: bool) -> NoReturn:
    verdict = Verdict.FINDINGS
    document = {"schema": f"aotkern.{kind}/1", "verdict": str(verdict), "problems": common.problems(error.problems)}
    common.finish(verdict, as_json=as_json, document=document, text=common.refusals(error))


def _remote(address: str, *, plain: bool) -> Remote:
    """A store for an address with `://`, a registry for any other. Each library is imported when it is needed."""
    from aotkern.distribution.reference import Reference  # noqa: PLC0415

    try:
        if "://" in address:
            from aotkern.distribution.stores import Store  # noqa: PLC0415

            return Store(address)
        from aotkern.distribution import login  # noqa: PLC0415
        from aotkern.distribution.registry import Registry  # noqa: PLC0415
    except ModuleNotFoundError as error:
        extra = "stores" if "://" in address else "oci"
        raise MissingToolError(str(error.name), f"for {address}", f"pip install 'aotkern[{extra}]'") from None
    reference = Reference.parse(address)
    config = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    return Registry(reference, login.stored(config, reference.registry), plain=plain)
