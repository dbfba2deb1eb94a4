"""`python -m aotkern` is the `aotkern` command."""

from aotkern.cli import main

main()
