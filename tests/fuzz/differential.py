"""Record a call, build it, and call again under something else: the bytes that are served against those of the JIT.

All of it happens in this process, on paper: the trace, the plan, the compiler's part of a worker, the bundle and the
server are the real ones, and the state of a worker (no variable but the pinned ones, no knob set) is made by hand.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from fuzzed import HELPERS, KERNELS
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from aotkern.build import compiler, environment, traced, traceplan
from aotkern.build.registry import Source
from aotkern.bundle import Bundle, write
from aotkern.digest import Digest
from aotkern.errors import BuildError, InputError, MissError
from aotkern.influences import SETTINGS, Treatment
from aotkern.manifest import KernelEntry, Manifest, ObjectEntry, VariantEntry
from aotkern.spec import ArgumentSpec, Fixed, Runtime, VariantKey
from aotkern.spec.key import flatten
from aotkern.target import Target
from aotkern.trace import Trace, row
from aotkern.triton_bridge import specialised
from aotkern.triton_bridge.paper import PaperTensor, paper_device
from aotkern.triton_bridge.serve import Server
from aotkern.triton_bridge.shelf import Shelf
from aotkern.triton_bridge.sink import MemorySink
from aotkern.triton_bridge.tracing import Tracer

COMPILE = triton.compiler.compiler.compile
VARIABLES = sorted({item.name for item in SETTINGS if item.name.isupper()})


@dataclass(frozen=True)
class Call:
    """A call and everything around it, as texts; see `fuzzed`."""

    kernel: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    edits: tuple[tuple[str, str, str], ...] = ()


@dataclass
class Outcome:
    """What became of the calls of one case.

    Attributes:
        built: Whether there was something to serve.
        hits: Calls that were served, each with the bytes of the JIT.
        misses: Reasons of those that were not.
        failed: Calls that Triton refuses by itself.
    """

    built: bool = False
    hits: int = 0
    misses: list[str] = field(default_factory=list)
    failed: int = 0


class World:
    """Modules of kernels with their edits, and a place for bundles."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aotkern-fuzz-")
        self.root = Path(self._folder.name)
        self._modules: dict[tuple[Any, ...], dict[str, ModuleType]] = {}
        self._numbers = itertools.count()

    def close(self) -> None:
        """Remove the folder, and the modules from the table."""
        for name in (*HELPERS, "fuzz_kernels"):
            sys.modules.pop(name, None)
        self._folder.cleanup()

    def modules(self, edits: tuple[tuple[str, str, str], ...]) -> dict[str, ModuleType]:
        """The modules with these edits, imported once, and now the ones in the table."""
        if edits not in self._modules:
            folder = self.root / f"modules{next(self._numbers)}"
            folder.mkdir()
            texts = {**HELPERS, "fuzz_kernels": KERNELS}
            for module, old, new in edits:
                assert old in texts[module], old
                texts[module] = texts[module].replace(old, new)
            for name, text in texts.items():
                (folder / f"{name}.py").write_text(text, "utf-8")
                sys.modules.pop(name, None)
            sys.path.insert(0, str(folder))
            importlib.invalidate_caches()
            try:
                self._modules[edits] = {name: importlib.import_module(name) for name in texts}
            finally:
                sys.path.remove(str(folder))
        sys.modules.update(self._modules[edits])
        return self._modules[edits]

    def place(self) -> Path:
        """A name for a file."""
        return self.root / f"file{next(self._numbers)}"


@contextmanager
def state(settings: tuple[str, ...], cache: Path) -> Iterator[None]:
    """Exactly these settings, and the two that every build pins."""
    plain = {**environment.pinned(), "TRITON_ALWAYS_COMPILE": "1", "TRITON_CACHE_DIR": str(cache)}
    before = {name: os.environ.get(name) for name in (*VARIABLES, *plain)}
    with ExitStack() as stack:
        for group in vars(triton.knobs).values():
            if isinstance(group, triton.knobs.base_knobs):
                stack.enter_context(group.scope())
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(plain)
        try:
            for setting in settings:
                name, _, text = setting.partition("=")
                group, _, knob = name.rpartition(".")
                if group:
                    if hasattr(getattr(triton.knobs, group), knob):
                        setattr(getattr(triton.knobs, group), knob, eval(text))
                else:
                    os.environ[name] = text
            yield
        finally:
            stack.close()
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})


def perform(world: World, call: Call, target: Target, compile: Any) -> Any:  # noqa: A002
    """Make a call on a device on paper, whose compiles go to `compile`; the compiled kernel."""
    modules = world.modules(call.edits)
    names = {"P": PaperTensor, "K": modules["fuzz_kernels"], "one": modules["fuzz_one"], "two": modules["fuzz_two"]}
    names["tl"] = tl
    function = getattr(modules["fuzz_kernels"], call.kernel)
    values = [eval(text, names) for text in call.arguments if text]
    options = eval(f"dict({', '.join(call.options)})", names)
    function.device_caches.clear()
    before = triton.compiler.compiler.compile, triton.compiler.compile
    triton.compiler.compiler.compile = triton.compiler.compile = compile
    try:
        with state(call.settings, world.root / "cache"), paper_device(target):
            return function[(1,)](*values, **options)
    finally:
        triton.compiler.compiler.compile, triton.compiler.compile = before
        function.device_caches.clear()


def record(world: World, call: Call, target: Target) -> Trace:
    """What `aotkern record` writes of a call; nothing where Triton refuses it before it compiles."""
    sink = MemorySink()

    def compiled(*_: Any, **__: Any) -> Any:
        return None  # the build compiles it; here only the request is wanted

    with suppress(Exception):  # what is recorded counts; there is nothing to launch
        perform(world, call, target, Tracer(sink)._around_compile(compiled))
    return Trace.parse(Trace.of(row(event, "recording") for event in sink.events).to_bytes(), "trace")


def build(world: World, trace: Trace, call: Call, target: Target) -> Bundle | None:
    """A bundle of a trace, or None where nothing in it compiles."""
    path = world.place().with_suffix(".jsonl")
    path.write_bytes(traceplan.planned(trace, [target], widen=False).to_bytes())
    world.modules(call.edits)
    objects: dict[Digest, ObjectEntry] = {}
    data: dict[Digest, bytes] = {}
    kernels, variants = [], []
    with state((), world.root / "cache"):
        for kernel in traced.load(Source("trace", path)).kernels:
            kernels.append(KernelEntry(kernel.declaration.name, kernel.parameters, kernel.source))
            for key in traced.keys(kernel, target, 100) or ():
                try:
                    options = compiler.effective_options(key)
                    made = compiler.compile_variant(kernel, key)
                except BuildError:
                    continue
                digest = Digest.of(made.data)
                objects[digest], data[digest] = ObjectEntry(digest, len(made.data), made.code.to_json()), made.data
                variants.append(
                    (VariantEntry(str(key), Digest.of(str(key).encode()), digest, made.launch, ""), options)
                )
    if not variants:
        return None
    toolchain = {"triton": triton.__version__, "amd_codegen": "none", "triton_digest": str(Digest.of(b""))}
    manifest = Manifest.make(target, toolchain, environment.pinned(), kernels, objects, variants)
    file = world.place().with_suffix(".aotk")
    write(file, manifest, data, {})
    return Bundle.open(file)


def serve(world: World, bundle: Bundle, call: Call, target: Target, outcome: Outcome) -> None:
    """Make a call that is served from a bundle, and hold what it gets against the JIT.

    Raises:
        AssertionError: A hit with other bytes, or with an assumption that does not hold.
    """
    sink = MemorySink()
    server = Server(Shelf([bundle], triton.__version__, mixed=False), "error", "miss", sink)
    seen: dict[str, Any] = {}

    def stop(*_: Any, **__: Any) -> Any:
        raise AssertionError("a miss in error mode compiles nothing")

    around = server.around_compile(stop)

    def compile(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:  # noqa: A001
        made = around(src, target=target, options=options, **more)
        key = VariantKey.parse(sink.events[-1]["variant"])
        asked = specialised.read(src, target, options)
        for (name, wanted), (_, given) in zip(key.arguments, asked.arguments, strict=True):
            assert _holds(wanted, given), f"{name}: {given} is served by {wanted}"
        backend = make_backend(target)
        leaves = [(path, leaf) for at, (_, spec) in enumerate(key.arguments) for path, leaf in flatten(spec, (at,))]
        attributes = {path: backend.parse_attr(leaf.attributes) for path, leaf in leaves if isinstance(leaf, Runtime)}
        general = ASTSource(src.fn, made.src.signature, made.src.constants, attributes)
        own = COMPILE(general, target=target, options=options)
        kind = backend.binary_ext
        seen["hit"] = made.asm[kind] == own.asm[kind], str(key)
        return made

    try:
        perform(world, call, target, compile)
    except MissError as error:
        outcome.misses.append(str(error))
        return
    except AssertionError:
        raise
    except Exception:
        if "hit" not in seen:  # Triton refuses the call by itself
            outcome.failed += 1
            return
    same, key = seen["hit"]
    assert same, f"a hit with other bytes than the JIT's: {key}"
    outcome.hits += 1


def _holds(wanted: ArgumentSpec, given: ArgumentSpec) -> bool:
    """Whether everything that a variant assumes of an argument is so for all values of the class of a call."""
    ours, theirs = list(flatten(wanted)), list(flatten(given))
    if [path for path, _ in ours] != [path for path, _ in theirs]:
        return False
    return all(_leaf_holds(ours[at][1], theirs[at][1]) for at in range(len(ours)))


def _leaf_holds(wanted: Runtime | Fixed, given: Runtime | Fixed) -> bool:
    if isinstance(wanted, Fixed) or isinstance(given, Fixed):
        # An integer that is 1 may be a parameter; it is no multiple of 16.
        folded = isinstance(given, Fixed) and given.constant.text == "1" and isinstance(wanted, Runtime)
        return wanted == given or (folded and wanted.type[0] in "iu" and wanted.type != "u1" and not wanted.divisible)
    wider = wanted.type == given.type or (given.type, wanted.type) in {("i32", "i64"), ("i64", "i64")}
    return wider and wanted.divisible <= given.divisible and wanted.small <= given.small


def check(world: World, first: Call, target: Target, calls: tuple[Call, ...]) -> Outcome:
    """One case: record and build the first call, then serve all of them.

    Raises:
        AssertionError: See `serve`; or what was built and not changed is not served.
    """
    outcome = Outcome()
    try:
        trace = record(world, first, target)
        bundle = build(world, trace, first, target) if trace.recorded else None
    except InputError:
        bundle = None
    if bundle is None:
        return outcome
    outcome.built = True
    serve(world, bundle, first, target, outcome)
    assert outcome.hits == 1 or outcome.failed, f"what was built is not served: {outcome.misses}"
    for call in calls:
        serve(world, bundle, call, target, outcome)
    return outcome


def refused() -> set[str]:
    """The settings with which every call is a miss."""
    return {item.name for item in SETTINGS if item.treatment is Treatment.REFUSED}
