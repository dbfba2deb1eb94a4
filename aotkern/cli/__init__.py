"""The command line: a translation from arguments to calls, and from results to text and an exit code.

Exit codes: 0 clean, 1 findings, 2 could not tell (bad input, missing tool).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run `aotkern`; a refusal becomes one message on standard error and exit code 2."""
    from aotkern.cli.main import aotkern  # noqa: PLC0415
    from aotkern.errors import AotkernError  # noqa: PLC0415

    try:
        aotkern()
    except AotkernError as error:
        sys.stderr.write(f"aotkern: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output has gone (`aotkern show ... | head`).
        sys.stderr.close()
        sys.exit(0)
