"""Kernel declarations, variant spaces and variant keys.

A kernel file imports from here to declare what can be asked of its kernels; the build, the loader and the audits read
the same data. Nothing in this room imports Triton or executes a kernel.
"""

from aotkern.spec.constant import Constant, FunctionName, Member, Named, Record, Wrapped
from aotkern.spec.declaration import (
    Bool,
    Constexpr,
    Float,
    Int,
    Joint,
    Kernel,
    Null,
    Parameter,
    Pointer,
    Space,
    Tuple,
)
from aotkern.spec.expand import expand
from aotkern.spec.key import ArgumentSpec, Fixed, Group, Runtime, VariantKey, named_in
from aotkern.spec.spelling import DtypeName

__all__ = [
    "ArgumentSpec",
    "Bool",
    "Constant",
    "Constexpr",
    "DtypeName",
    "Fixed",
    "Float",
    "FunctionName",
    "Group",
    "Int",
    "Joint",
    "Kernel",
    "Member",
    "Named",
    "Null",
    "Parameter",
    "Pointer",
    "Record",
    "Runtime",
    "Space",
    "Tuple",
    "VariantKey",
    "Wrapped",
    "expand",
    "named_in",
]
