"""`aotkern doctor`: what this machine can run, on any machine. It needs neither Triton nor torch, nor a GPU."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.cli import common
from aotkern.loader.doctor import BundleState, Diagnosis, DriverState, examine
from aotkern.settings import Settings
from aotkern.target import Target


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@click.option("--target", "-t", help="Look at a machine with one such device instead, such as gfx942:sramecc+:xnack-.")
@common.json_option
def doctor(bundles: tuple[str, ...], target: str | None, as_json: bool) -> NoReturn:
    """Say which drivers and devices this machine has, and which bundles fit them.

    A BUNDLE is a file, a folder, a name in AOTKERN_BUNDLE_PATH, an entry point or a package; without any, all that are
    in AOTKERN_BUNDLE_PATH and behind entry points. Nothing is loaded. Exit code 1: one is missing, or none fits.
    """
    planned = None if target is None else Target.parse(target, "--target")
    found = examine(bundles, Settings.read(), planned)
    verdict = Verdict.CLEAN if found.serves else Verdict.FINDINGS
    common.finish(verdict, as_json=as_json, document=_document(found, verdict), text=_text(found))


def _document(found: Diagnosis, verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": "aotkern.doctor/1",
        "verdict": str(verdict),
        "extension": found.extension,
        "drivers": [
            {
                "name": item.name,
                "library": item.library,
                "devices": [{**asdict(device), "target": str(device.target or "")} for device in item.devices],
                "reason": item.reason,
            }
            for item in found.drivers
        ],
        "bundles": [asdict(item) for item in found.bundles],
        "missing": [{"name": name, "reason": reason} for name, reason in found.missing],
        "broken": [{"name": name, "reason": reason} for name, reason in found.broken],
    }


def _text(found: Diagnosis) -> str:
    extension = "built" if found.extension else "not built: every launch goes through Python"
    lines = [*(line for item in found.drivers for line in _driver(item)), f"C extension  {extension}", ""]
    lines += [line for item in found.bundles for line in _bundle(item)]
    lines += [f"missing      {name}: {reason}" for name, reason in found.missing]
    lines += [] if found.bundles or found.missing else ["no bundle was named or found"]
    return "\n".join([*lines, *(f"broken       entry point {name}: {reason}" for name, reason in found.broken)])


def _driver(item: DriverState) -> list[str]:
    if not item.devices:
        return [f"{item.name:12} {item.reason}"]
    rows = [
        f"  device {device.index}   {device.name}, {device.arch}, {device.units} compute units, "
        f"{device.shared_bytes} bytes of LDS" + ("" if device.target else "; aotkern does not know this architecture")
        for device in item.devices
    ]
    return [f"{item.name:12} {item.library}", *rows]


def _bundle(item: BundleState) -> list[str]:
    if not item.target:
        return [f"refused      {item.where}: {item.reason}"]
    content = f"{item.variants} variants of {len(item.kernels)} kernels"
    if not item.devices:
        return [f"does not fit {item.where}: {item.target}, {content}", f"             {item.reason}"]
    on = ", ".join(map(str, item.devices))
    loads = f"preload loads {item.modules} code objects, {item.bytes} bytes, onto device {on}"
    return [f"fits         {item.where}: {item.target}, {content}", f"             {loads}"]
