"""Bundles for tests, made of kernels that Triton compiled in this process, without the build half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aotkern import codeobject
from aotkern.bundle import Bundle, encode
from aotkern.digest import Digest
from aotkern.manifest import KernelEntry, Launch, Manifest, ObjectEntry, VariantEntry
from aotkern.spec import Constant, Fixed, Parameter, VariantKey
from aotkern.target import Target

SCALE = (Parameter("x"), Parameter("out"), Parameter("n"), Parameter("factor"), Parameter("BLOCK", True, "128"))
"""The parameters of `triton_kernels.scale`."""


@dataclass(frozen=True)
class Spec:
    """One variant to put into a bundle: its arguments as in a key, and what differs from the default launch."""

    arguments: str
    options: Mapping[str, Any] = field(default_factory=lambda: {"num_warps": 4})
    launch: Mapping[str, Any] = field(default_factory=dict)


def make(
    compile_kernel: Callable[..., Any],
    target: str,
    specs: tuple[Spec, ...],
    kernel: str = "scale",
    parameters: tuple[Parameter, ...] = SCALE,
) -> bytes:
    """A bundle of one kernel of `triton_kernels`."""
    rows = []
    for spec in specs:
        options = {name: Constant.of(value) for name, value in sorted(spec.options.items())}
        text = f"{kernel}[{Target.parse(target)}]({spec.arguments})"
        key = VariantKey.parse(text + "{" + ",".join(f"{n}={v}" for n, v in options.items()) + "}")
        rows.append((key, compile_key(compile_kernel, key.kernel, key), spec.launch))
    return pack(target, rows, {kernel: parameters})


def pack(
    target: str, rows: list[tuple[VariantKey, Any, Mapping[str, Any]]], kernels: Mapping[str, tuple[Parameter, ...]]
) -> bytes:
    """A bundle of variants that are compiled already: key, code, and changes to the launch that Triton states."""
    objects: dict[Digest, ObjectEntry] = {}
    images: dict[Digest, bytes] = {}
    variants = []
    for key, compiled, changes in rows:
        digest = Digest.of(compiled.data)
        code = codeobject.read(compiled.data, str(key))
        objects[digest] = ObjectEntry(digest, len(compiled.data), code.to_json())
        images[digest] = compiled.data
        launch = Launch(**{"shared": compiled.shared, "num_warps": compiled.num_warps, **changes})
        content = Digest.of(str(key).encode())
        variants.append((VariantEntry(str(key), content, digest, launch, ""), dict(key.options)))
    entries = tuple(KernelEntry(name, parameters, Digest.of(name.encode())) for name, parameters in kernels.items())
    manifest = Manifest.make(Target.parse(target), {"triton": "test"}, {}, entries, objects, variants)
    return encode(manifest, images, {})


def compile_key(compile_kernel: Callable[..., Any], function: Any, key: VariantKey) -> Any:
    """Compile the variant of a flat key (no tuples); `function` is a kernel, or the name of one of `triton_kernels`."""
    signature, constants, attributes = {}, {}, {}
    for index, (name, spec) in enumerate(key.arguments):
        if isinstance(spec, Fixed):
            constants[name] = spec.constant.value
        else:
            signature[name] = spec.type
            attributes[(index,)] = [["tt.divisibility", 16]] * spec.divisible + [["tt.pointer_range", 32]] * spec.small
    options = {name: value.value for name, value in key.options}
    return compile_kernel(function, str(key.target), signature, constants, attributes, options)


def opened(data: bytes) -> Bundle:
    """The bundle in these bytes."""
    return Bundle.decode(data, "test.aotk")
