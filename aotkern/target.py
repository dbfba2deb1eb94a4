"""Targets: back end, architecture, wave size, and the target features of AMD code objects where they matter.

`hip:gfx942`, `hip:gfx942:sramecc+:xnack-` and `cuda:90` are spellings of targets. A bare `gfx950` or `90` is accepted
by `Target.parse` as a convenience; `str` always writes the full form. Nothing in this project substitutes one target
for another: `Target.refusal` is the whole rule by which a code object may run on a device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from aotkern.errors import InputError


class Backend(str, Enum):
    """The driver family that loads a code object."""

    HIP = "hip"
    CUDA = "cuda"

    def __str__(self) -> str:
        return self.value


class Feature(str, Enum):
    """The setting of one AMD target feature in a code object, or on a device."""

    ANY = ""
    ON = "+"
    OFF = "-"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the hardware of an architecture allows a workgroup.

    Attributes:
        lds_bytes: Most LDS (shared memory) that one workgroup may use, in bytes.
        wave: Lanes of a wave (warp).
        max_warps: Most waves of one workgroup.
        units: Compute units (multiprocessors) of the largest common device of this architecture: what a device on paper
            says that it has. Nothing that is built depends on it.
    """

    lds_bytes: int
    wave: int
    max_warps: int
    units: int


# Sources: AMD CDNA 3 and CDNA 4 ISA guides; CUDA programming guide, "compute capabilities" (opt-in shared memory).
_LIMITS: dict[tuple[Backend, str], Limits] = {
    (Backend.HIP, "gfx942"): Limits(65_536, 64, 16, 304),
    (Backend.HIP, "gfx950"): Limits(163_840, 64, 16, 256),
    (Backend.CUDA, "80"): Limits(166_912, 32, 32, 108),
    (Backend.CUDA, "86"): Limits(101_376, 32, 32, 84),
    (Backend.CUDA, "89"): Limits(101_376, 32, 32, 142),
    (Backend.CUDA, "90"): Limits(232_448, 32, 32, 132),
    (Backend.CUDA, "100"): Limits(232_448, 32, 32, 148),
    (Backend.CUDA, "120"): Limits(101_376, 32, 32, 188),
}

_SPELLING = re.compile(
    r"(?:(?P<backend>hip|cuda):)?(?P<arch>gfx[0-9a-f]{3,4}|[0-9]{2,3})(?P<features>(?::(?:sramecc|xnack)[+-])*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture that code is compiled for, or that a device has.

    Attributes:
        backend: The driver family.
        arch: `gfx942`, `gfx950`, ... for HIP; the compute capability without a dot (`90`) for CUDA.
        sramecc: AMD only. `ANY` in a code object that runs with either setting.
        xnack: AMD only, likewise.
    """

    backend: Backend
    arch: str
    sramecc: Feature = field(default=Feature.ANY)
    xnack: Feature = field(default=Feature.ANY)

    @classmethod
    def parse(cls, text: str, where: str = "target") -> Target:
        """Read `hip:gfx942:sramecc+:xnack-`, `gfx950`, `cuda:90` or `90`; features may come in any order.

        Raises:
            InputError: Not a target, or one whose limits aotkern does not know.
        """
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise InputError.one(where, f"a target such as {cls._known()}", repr(text))
        implied = Backend.HIP if match["arch"].startswith("gfx") else Backend.CUDA
        backend = Backend(match["backend"]) if match["backend"] else implied
        names = [part[:-1] for part in match["features"].split(":")[1:]]
        if backend is not implied or (backend, match["arch"]) not in _LIMITS:
            raise InputError.one(where, f"a target whose limits are known ({cls._known()})", repr(text))
        if len(names) != len(set(names)) or (names and backend is Backend.CUDA):
            raise InputError.one(where, "each AMD feature at most once, and none for CUDA", repr(text))
        features = {part[:-1]: Feature(part[-1]) for part in match["features"].split(":")[1:]}
        return cls(backend, match["arch"], **features)

    @classmethod
    def _known(cls) -> str:
        return ", ".join(str(cls(*pair)) for pair in _LIMITS)

    def __str__(self) -> str:
        marks = "".join(
            f":{name}{feature.value}"
            for name, feature in (("sramecc", self.sramecc), ("xnack", self.xnack))
            if feature is not Feature.ANY
        )
        return f"{self.backend}:{self.arch}{marks}"

    @property
    def slug(self) -> str:
        """A spelling for file names: `gfx950`, `sm90`, `gfx942-xnackoff`."""
        name = self.arch if self.backend is Backend.HIP else f"sm{self.arch}"
        words = {Feature.ON: "on", Feature.OFF: "off"}
        marks = (("sramecc", self.sramecc), ("xnack", self.xnack))
        return name + "".join(f"-{label}{words[value]}" for label, value in marks if value is not Feature.ANY)

    @property
    def limits(self) -> Limits:
        """The hardware limits of this architecture."""
        return _LIMITS[self.backend, self.arch]

    def refusal(self, device: Target) -> str | None:
        """Why code for this target may not run on `device`, or None when it may.

        Architectures must be equal: near relatives (sm_90 and sm_90a, sm_120 and sm_121, gfx942 and gfx950) never stand
        in for each other. A feature that the code leaves open fits any device; one that it fixes must be equal there.
        """
        if self.backend is not device.backend:
            return f"built for {self.backend}, the device is {device.backend}"
        if self.arch != device.arch:
            return f"built for {self.arch}, the device is {device.arch}"
        for name, built, has in (
            ("sramecc", self.sramecc, device.sramecc),
            ("xnack", self.xnack, device.xnack),
        ):
            if built is not Feature.ANY and built is not has:
                state = {Feature.ON: "on", Feature.OFF: "off", Feature.ANY: "not reported"}
                return f"built with {name} {state[built]}, the device has it {state[has]}"
        return None
