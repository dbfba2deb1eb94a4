"""What tests of the build half share: small kernel sources, hand-made manifests, and builds that are made once.

A plugin of the suite (see `conftest.py`). The kernel sources are texts, because most tests edit them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from aotkern.build import builder, environment
from aotkern.build.registry import Source
from aotkern.bundle import Bundle, encode
from aotkern.codeobject.facts import Argument, CodeObject, Resources, Role, Section
from aotkern.digest import Digest
from aotkern.manifest import KernelEntry, Launch, Manifest, ObjectEntry, VariantEntry
from aotkern.spec import Constant, Parameter
from aotkern.target import Target

GFX942, GFX950, SM90 = (Target.parse(text) for text in ("gfx942", "gfx950", "cuda:90"))

HEAD = """\
import triton
import triton.language as tl

from aotkern.spec import Bool, Constexpr, Float, Int, Joint, Kernel, Null, Pointer, Space, Tuple

"""

SCALE = (
    HEAD
    + '''
FACTOR: tl.constexpr = tl.constexpr(3)


@triton.jit
def _scaled(value):
    # what one value becomes
    return value * FACTOR


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    """Multiply every element."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    tl.store(out + place, _scaled(value), mask=place < n)


@triton.jit
def negate(x):
    """What only gfx950 has."""
    tl.store(x, -tl.load(x))


KERNELS = (
    Kernel(
        scale,
        Space(
            ("gfx942", "gfx950"),
            {"x": Pointer("fp32", "any"), "out": Pointer("fp32", "any"), "n": Int(classes=("16", "any")), "BLOCK": 64},
            options={"num_warps": 1},
        ),
    ),
    Kernel(negate, Space(("gfx950",), {"x": Pointer("fp32", "any")}, options={"num_warps": 1})),
)
'''
)
"""Two variants on gfx942 and three on gfx950, with a callee and a global."""

SINGLE = (
    HEAD
    + """
@triton.jit
def store(x, V: tl.constexpr):
    tl.store(x, V)


KERNELS = (Kernel(store, Space(("gfx942",), {"x": Pointer("fp32", "any"), "V": 1.0}, options={"num_warps": 1})),)
"""
)
"""One variant on gfx942."""


def edited(text: str, *changes: tuple[str, str]) -> str:
    """`text` with each first part replaced by the second; a part that is not there is a mistake of the test."""
    for old, new in changes:
        assert old in text, f"nothing to edit: {old!r}"
        text = text.replace(old, new)
    return text


def written(folder: Path, text: str, name: str = "kernels_here.py") -> Source:
    """A source file with this text."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, "utf-8")
    return Source.parse(str(path))


def request(source: Source, *targets: Target, **more: object) -> builder.Request:
    """A request for a build without a store, by one worker."""
    return builder.Request((source,), targets or (GFX942,), {"PATH": os.environ["PATH"]}, **more)


def built(source: Source, *targets: Target, **more: object) -> builder.Compilation:
    """Compile without a store; any failure is an error."""
    result = builder.compile_targets(request(source, *targets, **more))
    assert not result.failures, result.failures
    return result


def packed(build: builder.TargetBuild, provenance: Mapping[str, str] | None = None) -> bytes:
    """The bundle of a build, as bytes."""
    return encode(build.manifest, build.objects, provenance or {})


def code_object(seed: str, target: Target = GFX942, **changes: object) -> CodeObject:
    """Facts that were never in a file."""
    sections = tuple(
        Section(name, role, 64, Digest.of(f"{seed} {name}".encode()), flags)
        for name, role, flags in ((".note", Role.METADATA, 2), (".rodata", Role.DESCRIPTOR, 2), (".text", Role.CODE, 6))
    )
    values = {
        "target": target,
        "symbol": seed,
        "e_flags": 0x54C,
        "abi_version": 3,
        "sections": sections,
        "resources": Resources(12, 0, 20, 0, 0, 0, 0, 64, 256),
        "arguments": (Argument(0, 8, "global_buffer"), Argument(8, 4, "by_value")),
        "kernarg_bytes": 32,
    }
    return CodeObject(**{**values, **changes})


def object_entry(seed: str, **changes: object) -> ObjectEntry:
    """A code object entry for `code_object`."""
    return ObjectEntry(Digest.of(seed.encode()), len(seed), code_object(seed, **changes).to_json())


def hand_made() -> Manifest:
    """A small manifest whose every value is written here: two kernels, three variants, two objects."""
    first, second = object_entry("first"), object_entry("second")
    add = KernelEntry(
        "add",
        (Parameter("x"), Parameter("n", specialised=False, type="i64"), Parameter("B", constexpr=True, default="16")),
        Digest.of(b"source of add"),
    )
    copy = KernelEntry("copy", (Parameter("x"),), Digest.of(b"source of copy"))
    rows = (
        ("add[hip:gfx942](x:*fp32:DS,n:i64,B=16){num_warps=4}", first, Launch(0, 4), {"num_warps": Constant("4")}),
        ("add[hip:gfx942](x:*fp32:D,n:i64,B=16){num_warps=4}", first, Launch(0, 4), {"num_warps": Constant("4")}),
        (
            'copy[hip:gfx942](x:*bf16){mode="a b",num_warps=8}',
            second,
            Launch(65_536, 8, cooperative=True, global_scratch=128, global_scratch_align=16),
            {"mode": Constant('"a b"'), "num_warps": Constant("8")},
        ),
    )
    return Manifest.make(
        GFX942,
        {"triton": "3.9.0", "amd_codegen": "abc", "triton_digest": str(Digest.of(b"toolchain"))},
        {"TRITON_DEFAULT_FP_FUSION": "1"},
        (copy, add),
        {entry.digest: entry for entry in (first, second)},
        [
            (VariantEntry(text, Digest.of(text.encode()), entry.digest, launch, ""), o)
            for text, entry, launch, o in rows
        ],
    )


@dataclass(frozen=True)
class Sample:
    """`SCALE`, compiled for gfx942 and gfx950."""

    source: Source
    compilation: builder.Compilation

    def build(self, target: Target) -> builder.TargetBuild:
        return self.compilation.targets[target]

    def bundle(self, target: Target) -> Bundle:
        return Bundle.decode(packed(self.build(target)), f"scale.{target.slug}.aotk")


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """`SCALE`, compiled once for the whole session."""
    pytest.importorskip("triton")
    source = written(tmp_path_factory.mktemp("sample"), SCALE, "scale.py")
    return Sample(source, built(source, GFX942, GFX950))


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle with one variant of one kernel: few enough bytes to damage each of them."""
    pytest.importorskip("triton")
    source = written(tmp_path_factory.mktemp("small"), SINGLE, "single.py")
    return packed(built(source).targets[GFX942], {"compressor": "zstd"})


@pytest.fixture
def pinned_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process in the state of a worker, for tests that call the compiler directly."""
    scratch = tmp_path / "worker"
    scratch.mkdir()
    for name in [name for name in os.environ if name.startswith(("TRITON_", "AMDGCN_", "LLVM_", "MLIR_"))]:
        monkeypatch.delenv(name)
    variables = environment.for_worker(scratch, environment.pinned(), os.environ, {})
    for name in ("TRITON_DEFAULT_FP_FUSION", "TRITON_DISABLE_LINE_INFO", "TRITON_CACHE_DIR", "TRITON_ALWAYS_COMPILE"):
        monkeypatch.setenv(name, variables[name])


Git = Callable[..., str]


def repository(folder: Path) -> Git:
    """A new git repository in `folder`, as a function that runs git in it and returns its output."""
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}

    def git(*arguments: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environ = {**clean, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True, text=True, env=environ
        )
        return done.stdout.strip()

    folder.mkdir(parents=True, exist_ok=True)
    git("init", "-q")
    return git


@dataclass(frozen=True)
class Answer:
    """What a command did: exit code and what it wrote."""

    code: int
    out: str
    err: str

    def json(self, kind: str, code: int = 0) -> dict:
        """Standard output as a document of this kind, valid by the shipped schema."""
        import jsonschema

        from aotkern import schemas

        assert self.code == code, self
        value = json.loads(self.out)
        jsonschema.Draft202012Validator(schemas.load(kind)).validate(value)
        return value


Command = Callable[..., Answer]


@pytest.fixture
def aotkern(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in this process, with a local store of its own."""
    from aotkern.cli import main

    monkeypatch.setenv("AOTKERN_CACHE", str(tmp_path / "store"))

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["aotkern", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        return Answer(left.value.code, out, err)

    return run
