"""Why a launch in the emulator was given up: typed, without numpy."""

from __future__ import annotations

from aotkern.errors import EmulatorError


class UndecidedError(EmulatorError):
    """The emulator gave a launch up before it could tell whether the code is right."""


class LimitError(UndecidedError):
    """A launch ran more instructions, or for more seconds, than it was allowed."""


class UnsupportedError(UndecidedError):
    """The code asks for what the emulator does not know: an instruction, an operand, a mode, a host call."""
