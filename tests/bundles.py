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
    objects: dict[Digest, ObjectEntry] = {}
    images: dict[Digest, bytes] = {}
    variants = []
    for spec in specs:
        options = {name: Constant.of(value) for name, value in sorted(spec.options.items())}
        text = f"{kernel}[{Target.parse(target)}]({spec.arguments})"
        key = VariantKey.parse(text + "{" + ",".join(f"{n}={v}" for n, v in options.items()) + "}")
        compiled = compile_key(compile_kernel, key)
        digest = Digest.of(compiled.data)
        code = codeobject.read(compiled.data, str(key))
        objects[digest] = ObjectEntry(digest, len(compiled.data), code.to_json())
        images[digest] = compiled.data
        launch = Launch(**{"shared": compiled.shared, "num_warps": compiled.num_warps, **spec.launch})
        variants.append((VariantEntry(str(key), Digest.of(text.encode()), digest, launch, ""), options))
    source = KernelEntry(kernel, parameters, Digest.of(kernel.encode()))
    manifest = Manifest.make(Target.parse(target), {"triton": "test"}, {}, (source,), objects, variants)
    return encode(manifest, images, {})


def compile_key(compile_kernel: Callable[..., Any], key: VariantKey) -> Any:
    """Compile the kernel of a flat key (no tuples)."""
    signature, constants, attributes = {}, {}, {}
    for index, (name, spec) in enumerate(key.arguments):
        if isinstance(spec, Fixed):
            constants[name] = spec.constant.value
        else:
            signature[name] = spec.type
            attributes[(index,)] = [["tt.divisibility", 16]] * spec.divisible + [["tt.pointer_range", 32]] * spec.small
    return compile_kernel(key.kernel, str(key.target), signature, constants, attributes)


def opened(data: bytes) -> Bundle:
    """The bundle in these bytes."""
    return Bundle.decode(data, "test.aotk")
