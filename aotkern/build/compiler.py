"""Compiling one variant with Triton, and holding the result against what was asked. The only caller of its compiler.

Runs in a worker process, whose environment is pinned and whose Triton cache is private and empty. Triton's own binder
rules are not repeated here: a key says which classes an argument has, and the back end turns the class letters into
attributes.
"""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

from aotkern import codeobject, influences
from aotkern.build import environment, stages
from aotkern.build.constants import rebuilt
from aotkern.build.registry import LoadedKernel
from aotkern.codeobject.facts import CodeObject
from aotkern.compileoptions import RESERVED, as_constants
from aotkern.errors import BuildError, IntegrityError, MachineError
from aotkern.manifest import Launch
from aotkern.spec import Constant, Fixed, Group, Named, Runtime, VariantKey
from aotkern.spec.key import ArgumentSpec, flatten
from aotkern.target import Backend, Target

_SIZES = {"u1": 1, "i1": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled variant: its bytes, the facts read back from them, what a launch needs, and the stages that ran."""

    data: bytes
    code: CodeObject
    launch: Launch
    stages: tuple[str, ...]


def triton_target(target: Target) -> Any:
    """Triton's own name for a target."""
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415

    arch: str | int = target.arch if target.backend is Backend.HIP else int(target.arch)
    return GPUTarget(str(target.backend), arch, target.limits.wave)


def effective_options(key: VariantKey) -> dict[str, Constant]:
    """The options that take effect when a key's options are asked for, by the back end's own rules.

    Paths of bitcode libraries are replaced by the digests of their content.

    Raises:
        BuildError: An option that the back end does not have (Triton would drop it in silence), or a value it refuses.
    """
    from triton.compiler.compiler import make_backend  # noqa: PLC0415

    backend = make_backend(triton_target(key.target))
    settings, asked = _asked(key)
    known = {field.name for field in dataclasses.fields(type(backend.parse_options({})))} - set(RESERVED)
    if unknown := sorted(set(asked) - known):
        raise BuildError(str(key), f"unknown option {', '.join(unknown)}; {key.target} has {', '.join(sorted(known))}")
    try:
        with environment.holding(_variables(settings)):
            options = backend.parse_options(asked)
    except (AssertionError, TypeError, ValueError) as error:
        raise BuildError(str(key), f"the back end refuses the options: {error}") from error
    return as_constants(vars(options)) | settings


def _asked(key: VariantKey) -> tuple[dict[str, Constant], dict[str, Any]]:
    """The settings in a key, and the compile options that it asks for.

    Raises:
        BuildError: A setting that this back end does not read, or not as it is spelled.
    """
    settings = {name: value for name, value in key.options if influences.is_setting(name)}
    for name, value in settings.items():
        row = influences.named(name)
        if row is None or key.target.backend not in row.backends:
            raise BuildError(str(key), f"the compiler for {key.target.backend} does not read {name}")
        if value == influences.constant(row, row.default):
            raise BuildError(str(key), f"{name}={value} is what every build has, and must not be named")
        if influences.constant(row, influences.from_variable(row, influences.variable(value))) != value:
            raise BuildError(str(key), f"{name} cannot be {value}")
    return settings, {name: value.value for name, value in key.options if name not in settings}


def _variables(settings: dict[str, Constant]) -> dict[str, str | None]:
    return {name: influences.variable(value) for name, value in settings.items()}


def compile_variant(kernel: LoadedKernel, key: VariantKey) -> Compiled:
    """Compile one variant and check it.

    Raises:
        BuildError: It does not compile, exceeds a limit of the device, came out other than asked, or is not proved to
            come from the compiler.
    """
    effective_options(key)
    try:
        with environment.holding(_variables(_asked(key)[0])):
            compiled, run = stages.compiler().compile(*_task(kernel, key))
    except Exception as error:  # the compiler raises whatever it likes; each of them is this variant's failure
        made = MachineError if _is_of_the_machine(error) else BuildError
        raise made(str(key), f"{type(error).__name__}: {error}") from error
    data = _binary(compiled)
    if doubt := run.doubt(data):
        raise BuildError(str(key), doubt)
    launch = _launch(compiled.metadata)
    _check_limits(key, launch)
    return Compiled(data, _checked(key, data, compiled.metadata), launch, tuple(run.ran))


def _is_of_the_machine(error: Exception) -> bool:
    """Whether there was no room for the compiler to work: that says nothing about the kernel."""
    none_left = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in none_left)


def plain(kernel: LoadedKernel, key: VariantKey) -> bytes:
    """What Triton makes of one variant, unchecked: the yardstick of a benchmark.

    Raises:
        BuildError: It does not compile.
    """
    try:
        import triton  # noqa: PLC0415

        with environment.holding(_variables(_asked(key)[0])):
            return _binary(triton.compile(*_task(kernel, key)))
    except Exception as error:  # as above
        raise BuildError(str(key), f"{type(error).__name__}: {error}") from error


def _task(kernel: LoadedKernel, key: VariantKey) -> tuple[Any, Any, dict[str, Any]]:
    """Source, target and options, as `triton.compile` takes them."""
    from triton.compiler import ASTSource  # noqa: PLC0415
    from triton.compiler.compiler import make_backend  # noqa: PLC0415

    target = triton_target(key.target)
    backend = make_backend(target)
    asked = _asked(key)[1]

    def lookup(of: Named) -> Any:
        return kernel.named[str(of)]

    leaves = [(path, leaf) for i, (_, spec) in enumerate(key.arguments) for path, leaf in flatten(spec, (i,))]
    source = ASTSource(
        fn=kernel.declaration.function,
        signature={name: _signature(spec) for name, spec in key.arguments},
        constexprs={p: rebuilt(leaf.constant, lookup) for p, leaf in leaves if isinstance(leaf, Fixed)},
        attrs={p: backend.parse_attr(leaf.attributes) for p, leaf in leaves if isinstance(leaf, Runtime)},
    )
    return source, target, asked


def _binary(compiled: Any) -> bytes:
    data: bytes = compiled.asm["hsaco" if "hsaco" in compiled.asm else "cubin"]
    return data


def _signature(spec: ArgumentSpec) -> Any:
    if isinstance(spec, Group):
        return tuple(_signature(item) for item in spec.items)
    return "constexpr" if isinstance(spec, Fixed) else spec.type


def _launch(metadata: Any) -> Launch:
    return Launch(
        shared=metadata.shared,
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        cooperative=bool(metadata.launch_cooperative_grid),
        pdl=bool(getattr(metadata, "launch_pdl", False)),
        # A back end that has no scratch memory says nothing of it.
        global_scratch=getattr(metadata, "global_scratch_size", 0) or 0,
        global_scratch_align=getattr(metadata, "global_scratch_align", 1) or 1,
        profile_scratch=getattr(metadata, "profile_scratch_size", 0) or 0,
        profile_scratch_align=getattr(metadata, "profile_scratch_align", 1) or 1,
    )


def _check_limits(key: VariantKey, launch: Launch) -> None:
    limits = key.target.limits
    if launch.shared > limits.lds_bytes:
        reason = f"LDS of a workgroup: {launch.shared} > {limits.lds_bytes} bytes ({key.target.arch})"
        raise BuildError(str(key), reason)
    if launch.num_warps > limits.max_warps:
        raise BuildError(str(key), f"num_warps: {launch.num_warps} > {limits.max_warps} ({key.target.arch})")


def _checked(key: VariantKey, data: bytes, metadata: Any) -> CodeObject:
    """Read the code object back: target, symbol and argument layout must be those asked for."""
    try:
        code = codeobject.read(data, "compiler output")
    except IntegrityError as error:
        raise BuildError(str(key), f"the compiler wrote a damaged file: {error}") from error
    if code.target != key.target or code.symbol != metadata.name:
        found = f"{code.symbol} for {code.target}"
        raise BuildError(str(key), f"asked for {metadata.name} for {key.target}, the compiler wrote {found}")
    # Two pointers follow the declared parameters: global scratch and profiler scratch.
    expected = [*(_size(leaf) for _, leaf in key.parameters), 8, 8]
    sizes = [a.size for a in code.arguments if not a.kind.startswith("hidden_")]
    if sizes != expected:
        reason = f"argument sizes by the key {expected}, in the code object {sizes}"
        raise BuildError(str(key), reason)
    return code


def _size(leaf: Runtime) -> int:
    return 8 if leaf.is_pointer else _SIZES.get(leaf.type) or int(leaf.type[1:]) // 8
