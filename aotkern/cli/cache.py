"""`aotkern cache`: the local store of compiled variants."""

from __future__ import annotations

import shutil

import click

from aotkern.cli import common
from aotkern.errors import InputError


@click.command()
@click.option("--clear", is_flag=True, help="Remove everything in it.")
def cache(clear: bool) -> None:
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
    click.echo(f"{root}: {len(files)} variants, {size} bytes{', cleared' if clear else ''}")
