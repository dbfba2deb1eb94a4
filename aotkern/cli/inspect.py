"""Commands that read bundles: `verify`, `show`, `manifest`, `diff`. They need neither Triton nor torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bundle import Bundle, publish
from aotkern.cli import common
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, TrustError
from aotkern.escape import visible
from aotkern.manifest import Manifest, VariantEntry
from aotkern.trace import TUNING, choices, origins

if TYPE_CHECKING:
    from aotkern.trust import Approval


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...")
@click.option(
    "--require-signature",
    "trust",
    metavar="TRUSTFILE",
    type=click.Path(path_type=Path),
    help="Refuse what the keys of this trust file do not vouch for.",
)
@click.option(
    "--locked",
    metavar="LOCKFILE",
    type=click.Path(path_type=Path),
    help="Refuse bundles that are not the ones in this lock file.",
)
@common.json_option
def verify(bundles: tuple[str, ...], trust: Path | None, locked: Path | None, as_json: bool) -> NoReturn:
    """Check every byte of BUNDLEs: hashes, manifest, and each ELF against what the manifest says of it.

    With --require-signature the decision about the signature beside each file comes first, and what is refused is not
    opened.
    """
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    approvals: dict[Path, Approval] = {}
    opened = _opener(trust, approvals)
    if locked is not None:
        opened = _only_locked(opened, locked)
    for name in bundles:
        problems, line, facts = _verified(name, opened)
        lines += [*(f"REFUSED {problem}" for problem in problems), *([line] if line else [])]
        rows.append({"file": name, "problems": common.problems(problems), **facts})
    if approvals:
        _add_release_problems(approvals, rows, lines)
    verdict = Verdict.FINDINGS if any(row["problems"] for row in rows) else Verdict.CLEAN
    document = {"schema": "aotkern.verify/1", "verdict": str(verdict), "bundles": rows}
    common.finish(verdict, as_json=as_json, document=document, text="\n".join(lines))


_Opener = Callable[[str], tuple[Bundle, dict[str, Any]]]


def _add_release_problems(approvals: dict[Path, Approval], rows: list[dict[str, Any]], lines: list[str]) -> None:
    """Each bundle may be well signed, and the bundles together be of different releases."""
    from aotkern.trust.files import release_problems  # noqa: PLC0415 - only for those who ask for signatures

    by_file = {Path(row["file"]): row for row in rows}
    for path, problem in release_problems(approvals):
        by_file[path]["problems"] += common.problems([problem])
        lines.append(f"REFUSED {problem}")


def _opener(trust: Path | None, approvals: dict[Path, Approval]) -> _Opener:
    """How a bundle is opened: as it is, or after a decision about its signatures, whose facts come with it.

    Decisions in its favour are added to `approvals`.
    """
    if trust is None:
        return lambda name: (Bundle.open(name), {})
    from aotkern.trust import Trust, require_file  # noqa: PLC0415 - nobody pays for it who does not ask

    read, now = Trust.read(trust), datetime.now(timezone.utc)

    def open_signed(name: str) -> tuple[Bundle, dict[str, Any]]:
        approval = require_file(Path(name), read, now)
        approvals[Path(name)] = approval
        return approval.bundle, {"signers": list(approval.signers), "sequence": approval.statement.sequence}

    return open_signed


def _only_locked(opened: _Opener, path: Path) -> _Opener:
    """An opener that refuses what is not in the lock file."""
    from aotkern.lock import Lock  # noqa: PLC0415 - nobody pays for it who does not ask

    lock = Lock.read(path)

    def open_locked(name: str) -> tuple[Bundle, dict[str, Any]]:
        bundle, facts = opened(name)
        lock.check([bundle])
        return bundle, facts

    return open_locked


def _verified(name: str, opened: _Opener) -> tuple[tuple[Problem, ...], str, dict[str, Any]]:
    try:
        bundle, signed = opened(name)
        bundle.verify()
    except (IntegrityError, TrustError) as error:
        return error.problems, "", {}
    manifest = bundle.manifest
    facts = {
        "digest": str(bundle.digest),
        "manifest": str(manifest.digest),
        "target": str(manifest.target),
        "variants": len(manifest.variants),
        "objects": len(manifest.objects),
        **signed,
    }
    counts = f"{len(manifest.variants)} variants, {len(manifest.objects)} code objects"
    signers = f", signed by {' and '.join(signed['signers'])} ({signed['sequence']})" if signed else ""
    line = f"ok {visible(name)}: {manifest.target}, {counts}{signers}, {bundle.digest}"
    return (), line, facts


@click.command()
@click.argument("bundle")
@click.option("--variant", help="Show one variant: its key, or a part of it that no other has.")
@click.option("--asm", metavar="VARIANT", help="Disassemble one variant, named as for --variant.")
@click.option("--variants", is_flag=True, help="List the keys of all variants.")
@common.json_option
def show(bundle: str, variant: str | None, asm: str | None, variants: bool, as_json: bool) -> NoReturn:
    """Show what is in BUNDLE."""
    opened = _checked(bundle)
    manifest = opened.manifest
    if asm is not None:
        _listing(opened, _find(manifest, asm, "--asm"), as_json=as_json)
    if variant is not None:
        entry = _find(manifest, variant, "--variant")
        document = {"schema": "aotkern.variant/1", "verdict": str(Verdict.CLEAN), **_variant(opened, entry)}
        common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=_pairs(document))
    document = {
        "schema": "aotkern.show/1",
        "verdict": str(Verdict.CLEAN),
        "file": bundle,
        "digest": str(opened.digest),
        "provenance": dict(opened.provenance),
        "manifest": json.loads(manifest.to_bytes()),
    }
    if variants and not as_json:
        common.finish(Verdict.CLEAN, as_json=False, document=None, text="\n".join(v.text for v in manifest.variants))
    overview = ""
    if not as_json:
        from aotkern.report import text  # noqa: PLC0415 - the presentation of audits costs imports verify does not need

        facts = {**opened.provenance, **_tuning(opened)}
        provenance = "\n".join(f"{name}  {value}" for name, value in facts.items())
        overview = f"{text.manifest(manifest)}\n\n{provenance}".strip()
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=overview)


def _tuning(bundle: Bundle) -> dict[str, str]:
    """The autotuners' choices of a bundle in a few words; --json holds them whole."""
    found = choices(bundle.provenance.get(TUNING, ""), f"{bundle.where}: {TUNING}")
    target = str(bundle.manifest.target)
    borrowed = [choice.target for choice in found if choice.target != target]
    paper = sum(choice.paper for choice in found)
    return {TUNING: f"{len(found)} choices of autotuners{origins(borrowed, paper)}"} if found else {}


def _checked(name: str) -> Bundle:
    """A bundle whose manifest holds together, which `Bundle.open` alone leaves to those who need all of it."""
    bundle = Bundle.open(name)
    bundle.manifest.check(f"{name}: manifest")
    return bundle


def _find(manifest: Manifest, wanted: str, option: str) -> VariantEntry:
    exact = manifest.by_text.get(wanted)
    matching = [exact] if exact else [entry for entry in manifest.variants if wanted in entry.text]
    if len(matching) != 1:
        shown = "".join(f"\n    {entry.text}" for entry in matching[:5])
        raise InputError.one(option, "a key, or a part that one key has", f"{len(matching)} matches{shown}")
    return matching[0]


def _listing(bundle: Bundle, entry: VariantEntry, *, as_json: bool) -> NoReturn:
    """Print the instructions of a variant with their offsets in the text section."""
    from aotkern.audit.sides import Side, instructions  # noqa: PLC0415 - an optional extra stands behind it

    side = Side(bundle.where, bundle.manifest, bundle.object)
    rows = [{"offset": item.pc, "text": item.text} for item in instructions(side, entry.object)]
    document = {"schema": "aotkern.listing/1", "verdict": str(Verdict.CLEAN), "key": entry.text, "instructions": rows}
    lines = [entry.text, *(f"{row['offset']:6x}  {row['text']}" for row in rows)]
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text="\n".join(lines))


def _variant(bundle: Bundle, entry: VariantEntry) -> dict[str, Any]:
    from aotkern.audit.determinism import float_atomics  # noqa: PLC0415 - an optional extra stands behind it
    from aotkern.audit.sides import Side  # noqa: PLC0415

    manifest = bundle.manifest
    code = manifest.object(entry.object)
    atomics = float_atomics(Side(bundle.where, manifest, bundle.object), entry.object)
    return {
        "key": entry.text,
        "content": str(entry.content),
        "object": str(entry.object),
        "bytes": code.size,
        "launch": {name: getattr(entry.launch, name) for name in type(entry.launch).__slots__},
        "options": {name: value.text for name, value in manifest.options[entry.options].items()},
        "float_atomics": None if atomics is None else list(atomics),
        "code": code.code.to_json(),
    }


def _pairs(value: dict[str, Any], indent: str = "") -> str:
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict):
            lines += [f"{indent}{name}:", _pairs(item, indent + "  ")]
        elif name == "float_atomics":
            words = "not known" if item is None else ", ".join(item) or "none"
            lines.append(f"{indent}float atomics, whose order no launch repeats: {words}")
        elif name not in ("schema", "verdict"):
            shown = json.dumps(item) if isinstance(item, list) else visible(str(item))
            lines.append(f"{indent}{name}: {shown}")
    return "\n".join(lines)


@click.command()
@click.argument("bundle")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Write it to this file instead.")
@click.option("--json", "as_json", is_flag=True, help="Accepted because every command has it: a manifest is JSON.")
def manifest(bundle: str, out: Path | None, as_json: bool) -> None:
    """Print the canonical manifest of BUNDLE: JSON, one variant a line, ready to be committed as a baseline."""
    del as_json
    data = _checked(bundle).manifest.to_bytes()
    if out is None:
        common.emit(data)
        return
    try:
        publish(out, data)
    except OSError as error:
        raise InputError.one(str(out), "a file that can be written", error.strerror or str(error)) from error


@click.command()
@click.argument("before")
@click.argument("after")
@common.json_option
def diff(before: str, after: str, as_json: bool) -> NoReturn:
    """Compare two bundles or manifests of one target: BEFORE with AFTER, variant by variant, whatever compiled them."""
    from aotkern.audit.identity import compare  # noqa: PLC0415
    from aotkern.audit.sides import Side  # noqa: PLC0415
    from aotkern.report import machine, text  # noqa: PLC0415

    known: dict[Digest, CodeObject] = {}
    report = compare(Side.either(Path(before), known), Side.either(Path(after), known), same_toolchain=False)
    common.finish(report.verdict, as_json=as_json, document=machine.identity(report), text=text.identity(report))
