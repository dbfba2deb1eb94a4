"""An emulator of AMD gfx942 and gfx950 machine code: it runs HSACOs as they ship, without a GPU.

It says whether the code computes the right numbers. It says nothing about time, hazards, or the last place of
transcendental functions and matrix products; what ran here was executed by an emulator, not by hardware.
"""

from aotkern.emulator.machine import Buffer, Statistics, WaveOrder, run

__all__ = ["Buffer", "Statistics", "WaveOrder", "run"]
