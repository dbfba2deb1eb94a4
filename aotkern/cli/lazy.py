"""A command group that imports a command when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from aotkern.errors import MissingToolError

_EXTRAS = {"numpy": "emulator", "triton": "build", "torch": "torch", "requests": "oci"}
"""Libraries that whole commands need, and the extras that bring them."""


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
        """Import one command.

        Raises:
            MissingToolError: It needs a library that is not installed.
        """
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name not in _EXTRAS:
                raise
            advice = f"pip install 'aotkern[{_EXTRAS[error.name]}]'"
            raise MissingToolError(error.name, f"for `{cmd_name}`", advice) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])
