"""`aotkern cache`: the local store of compiled variants."""

from __future__ import annotations

from typing import NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.build.store import Store
from aotkern.cli import common
from aotkern.errors import InputError


@click.command()
@click.option("--clear", is_flag=True, help="Remove every compiled variant.")
@common.json_option
def cache(clear: bool, as_json: bool) -> NoReturn:
    """Show where compiled variants are kept and how much is there. The audits never read it.

    That is a folder of its own inside AOTKERN_CACHE; nothing else there is counted or removed.
    """
    store = Store(common.cache_folder().absolute())
    root = store.root
    try:
        sizes = [found.st_size for _, found in store.entries()]
        if clear:
            store.clear()
    except OSError as error:
        raise InputError.one(str(root), "a folder that can be cleared", error.strerror or str(error)) from error
    facts = {"folder": str(root), "variants": len(sizes), "bytes": sum(sizes), "cleared": clear}
    document = {"schema": "aotkern.cache/1", "verdict": str(Verdict.CLEAN), **facts}
    text = f"{root}: {len(sizes)} variants, {sum(sizes)} bytes{', cleared' if clear else ''}"
    common.finish(Verdict.CLEAN, as_json=as_json, document=document, text=text)
