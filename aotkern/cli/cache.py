"""`aotkern cache`: the local store of compiled variants."""

from __future__ import annotations

import shutil
from typing import NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.cli import common
from aotkern.errors import InputError


@click.command()
@click.option("--clear", is_flag=True, help="Remove everything in it.")
@common.json_option
def cache(clear: bool, as_json: bool) -> NoReturn:
    """Show where compiled variants are kept and how much is there. The audits never read it."""
    root = common.cache_folder()
    files = [path for path in root.glob("??/*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if clear:
        try:
            for folder in {path.parent for path in files}:
                shutil.rmtree(folder)
            (root / "toolchain").unlink(missing_ok=True)
        except OSError as error:
            raise InputError.one(str(root), "a folder that can be cleared", error.strerror or str(error)) from error
    facts = {"folder": str(root), "variants": len(files), "bytes": size, "cleared": clear}
    document = {"schema": "aotkern.cache/1", "verdict": str(Verdict.CLEAN), **facts}
    text = f"{root}: {len(files)} variants, {size} bytes{', cleared' if clear else ''}"
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=text)
