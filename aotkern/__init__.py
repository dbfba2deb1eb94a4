"""aotkern: Triton GPU kernels as machine code, built ahead of time, loaded without a compiler, audited.

This package imports nothing heavy: `aotkern.errors`, `aotkern.spec` and the other rooms are imported by whoever needs
them, so that a command that only reads a bundle pays neither for Triton nor for torch.
"""

__version__ = "0.1.0"
