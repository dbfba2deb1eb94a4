"""What a numerics audit runs: small inputs for one variant of a kernel, with what must come out.

A kernel package offers its cases as a mapping `CASES` from kernel names to functions:

    def cases(key: VariantKey, seed: int) -> Iterator[Case]: ...

    CASES = {"add": cases}

The function reads the constants of the variant from its key, draws inputs from the seed, and computes the expected
outputs by other means than the kernel: a float64 formula, or bytes from an independent writer. Needs NumPy.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from aotkern.errors import InputError
from aotkern.spec import Fixed, VariantKey

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Typed:
    """An array whose elements NumPy has no type for: bf16 as uint16, fp8 as uint8.

    Attributes:
        data: The bit patterns, contiguous.
        element: Triton's name of the element type.
    """

    data: Array
    element: str


@dataclass(frozen=True, slots=True)
class Sparse:
    """Memory too large to fill, of which only some pieces hold something: the rest is zero and takes no room.

    For offsets beyond 2^31 bytes. A kernel gets it as one contiguous array.

    Attributes:
        shape: Shape of the whole.
        dtype: Type of its elements.
        pieces: By byte offset, arrays that stand there; they do not overlap.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Mapping[int, Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Exact:
    """An output that must be equal bit by bit. `data` has the type and shape of the argument's array."""

    data: Array | Sparse


@dataclass(frozen=True, slots=True)
class Near:
    """An output that must be near a float64 reference.

    Where the reference is NaN or infinite the output must be the same. One that is finite there leaves the question
    open, since it may be the reference that failed, unless `nonfinite` says that the reference means it.

    Attributes:
        data: The reference, float64, of the argument's shape.
        atol: Largest absolute error, added to `rtol` times the reference; one for all elements, or an array that is
            broadcast to them.
        rtol: Largest relative error.
        l2: Largest norm of the error over the norm of the reference.
        elsewhere: An array of the argument's type and shape: where the reference is NaN, the output must equal it bit
            by bit.
        undefined: Where this is true, bool of the argument's shape, the output may hold anything.
        nonfinite: NaN and infinities of the reference are meant: an output that is finite there is wrong.
    """

    data: NDArray[np.float64]
    atol: float | NDArray[np.float64] = 0.02
    rtol: float = 0.02
    l2: float = 1e-2
    elsewhere: Array | None = None
    undefined: NDArray[np.bool_] | None = None
    nonfinite: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """An output of which nothing is asked, and why: scratch memory, a counter, ..."""

    reason: str


Expected = Union[Exact, Near, Ignored]


@dataclass(frozen=True, slots=True)
class Case:
    """One launch.

    Attributes:
        name: What it is about, in a few words: `empty row`, `65 entries`.
        grid: Workgroups.
        arguments: A value for each parameter that is not fixed by the key: arrays, `Typed`, `Sparse`, ints, floats,
            None. Arrays are copied before the launch.
        expected: What the named arguments must hold afterwards. Each array that the kernel stores to needs one.
    """

    name: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    expected: Mapping[str, Expected] = field(default_factory=dict)


CaseFunction = Callable[[VariantKey, int], Iterator[Case]]
CaseFunctions = Mapping[str, CaseFunction]


def constants(key: VariantKey) -> dict[str, Any]:
    """The values of the parameters that the key fixes."""
    return {name: spec.constant.value for name, spec in key.arguments if isinstance(spec, Fixed)}


def load(source: str) -> Mapping[str, CaseFunction]:
    """The `CASES` of a module by name, or of a file by path.

    Raises:
        InputError: It cannot be imported, or offers no cases.
    """
    try:
        if source.endswith(".py") or "/" in source:
            spec = importlib.util.spec_from_file_location(Path(source).stem, source)
            if spec is None or spec.loader is None:
                raise InputError.one(source, "a Python file", "something else")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(source)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError.one(source, "a module or file with CASES", f"{type(error).__name__}: {error}") from error
    found = getattr(module, "CASES", None)
    if not isinstance(found, Mapping) or not found:
        raise InputError.one(source, "CASES, a mapping from kernel names to functions", type(found).__name__)
    return found
