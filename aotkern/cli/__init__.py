"""The command line: a translation from arguments to calls, and from results to text and an exit code.

Exit codes: 0 clean, 1 findings, 2 could not tell (bad input, missing tool, a fault of aotkern itself). No other way out
ends in 0 or 1: a gate that crashed has found nothing and proved nothing.
"""

from __future__ import annotations

import contextlib
import io
import sys

_INTERRUPTED = 130  # what shells report for a program that ended by Ctrl-C


def main() -> None:
    """Run `aotkern`; a refusal becomes one message on standard error and exit code 2."""
    import click  # noqa: PLC0415

    from aotkern.cli.commands import aotkern  # noqa: PLC0415
    from aotkern.errors import AotkernError  # noqa: PLC0415
    from aotkern.escape import visible_text  # noqa: PLC0415

    try:
        # Not click's own way out: it ends in 1 for an interrupt, which would read as findings.
        code = aotkern(prog_name="aotkern", standalone_mode=False)
    except click.ClickException as error:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            error.show()
        sys.stderr.write(visible_text(said.getvalue()))
        sys.exit(2)
    except click.Abort:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        # What the system refuses to everybody (descriptors, space, memory), wherever it happens to be noticed.
        sys.stderr.write(visible_text(f"aotkern: expected room to work, found {error}\n"))
        sys.exit(2)
    except AotkernError as error:
        sys.stderr.write(visible_text(f"aotkern: {error}\n"))
        sys.exit(2)
    except Exception:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        sys.exit(2)
    sys.exit(code or 0)
