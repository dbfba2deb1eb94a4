"""The command tree. Each command's module is imported when the command is called, so that none pays for another."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from aotkern import __version__


class LazyGroup(click.Group):
    """A group whose commands are named with their help here and imported when used.

    Args:
        lazy: For each command `module:attribute` and its line of help.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which they are used."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])


COMMANDS = {
    "build": ("aotkern.cli.build:build", "Compile declared variants into one bundle per target."),
    "verify": ("aotkern.cli.inspect:verify", "Check every byte of bundles, without running anything."),
    "show": ("aotkern.cli.inspect:show", "Show what is in a bundle, or one of its variants."),
    "manifest": ("aotkern.cli.inspect:manifest", "Print the manifest of a bundle."),
    "diff": ("aotkern.cli.inspect:diff", "Compare two bundles or manifests variant by variant."),
    "audit": ("aotkern.cli.audit:audit", "Prove things about kernels and bundles before a release."),
    "cache": ("aotkern.cli.cache:cache", "Show or clear the local store of compiled variants."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aotkern")
def aotkern() -> None:
    """Ship Triton GPU kernels as machine code: build, load, audit.

    Exit codes: 0 clean, 1 findings, 2 could not tell (bad input, missing tool).
    """
