"""The command tree. Each command's module is imported when the command is called, so that none pays for another."""

from __future__ import annotations

import click

from aotkern import __version__
from aotkern.cli.lazy import LazyGroup

COMMANDS = {
    "build": ("aotkern.cli.build:build", "Compile declared variants into one bundle per target."),
    "record": ("aotkern.cli.record:record", "Run a program and write down what it asks Triton's compiler for."),
    "run": ("aotkern.cli.run:run", "Run a program unchanged with prebuilt binaries."),
    "verify": ("aotkern.cli.inspect:verify", "Check every byte of bundles, without running anything."),
    "show": ("aotkern.cli.inspect:show", "Show what is in a bundle, or one of its variants."),
    "manifest": ("aotkern.cli.inspect:manifest", "Print the manifest of a bundle."),
    "diff": ("aotkern.cli.inspect:diff", "Compare two bundles or manifests variant by variant."),
    "doctor": ("aotkern.cli.doctor:doctor", "Say what this machine can run, and why not."),
    "audit": ("aotkern.cli.gate:audit", "Prove things about kernels and bundles before a release."),
    "keygen": ("aotkern.cli.trust:keygen", "Make a key for signing bundles."),
    "sign": ("aotkern.cli.trust:sign", "Sign a bundle, with what the audits said of it."),
    "pack": ("aotkern.cli.pack:pack", "Pack bundles as a wheel that pip installs and the loader finds."),
    "lock": ("aotkern.cli.pack:lock", "Pin bundles by digest for a consumer."),
    "push": ("aotkern.cli.transfer:push", "Push bundles to a registry or a store."),
    "pull": ("aotkern.cli.transfer:pull", "Pull the bundle for one target, checked before it gets its name."),
    "bench": ("aotkern.cli.bench:bench", "Measure aotkern on this machine, kernels and bundles."),
    "cache": ("aotkern.cli.cache:cache", "Show or clear the local store of compiled variants."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aotkern")
def aotkern() -> None:
    """Ship Triton GPU kernels as machine code: build, load, audit.

    Exit codes: 0 clean, 1 findings, 2 could not tell (bad input, missing tool).
    """
