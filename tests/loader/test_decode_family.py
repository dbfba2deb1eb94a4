"""The host functions of the decode family with a bundle as their launcher: every launch finds a declared variant."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from bundles import compile_key, pack

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotkern.arguments import bind, read  # noqa: E402
from aotkern.build import registry, sources  # noqa: E402
from aotkern.dispatch import Choice, Table, Variant, choose  # noqa: E402
from aotkern.drivers.null import UNITS  # noqa: E402
from aotkern.spec import Constant, VariantKey  # noqa: E402
from aotkern.spec.expand import expand  # noqa: E402
from aotkern.target import Target  # noqa: E402

ROOT = Path(__file__).parents[2]
ROWS = (1, 4, 16, 64)


@pytest.fixture(scope="module")
def kernels() -> Mapping[str, registry.LoadedKernel]:
    """The kernels that the project ships, as the build loads them."""
    found = registry.load(sources.parse((str(ROOT / "kernels"),)))
    return {kernel.declaration.name: kernel for kernel in found}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The kernels under the name that they are installed by."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "aotkern_kernels").symlink_to(ROOT / "kernels")
    return folder


@pytest.fixture
def example(package, monkeypatch):
    """The example's module."""
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import serve_decode

    return serve_decode


class Planner:
    """A launcher that chooses among all declared variants, and notes what it chose."""

    def __init__(self, kernels: Mapping[str, registry.LoadedKernel], target: str) -> None:
        self.kernels, self.target, self.tables = kernels, Target.parse(target), {}
        self.chosen: dict[str, VariantKey] = {}

    def __getitem__(self, name):
        return _Planned(self, name)

    def table(self, name: str) -> Table:
        if name not in self.tables:
            kernel = self.kernels[name]
            keys = expand(kernel.declaration, kernel.parameters, self.target)
            variants = [Variant(key, dict(key.options)) for key in keys]
            self.tables[name] = Table.make(name, kernel.parameters, variants)
        return self.tables[name]


class _Planned:
    def __init__(self, planner: Planner, name: str) -> None:
        self.planner, self.name = planner, name

    def __getitem__(self, grid):
        return self

    def __call__(self, *args, **kwargs):
        table = self.planner.table(self.name)
        raw, options = bind(self.name, table.parameters, args, kwargs)
        values = [read(parameter, value, self.name) for parameter, value in zip(table.parameters, raw, strict=True)]
        outcome = choose(table, values, {name: Constant.of(value) for name, value in options.items()})
        assert isinstance(outcome, Choice), str(outcome)
        key = table.variants[outcome.index].key
        self.planner.chosen[str(key)] = key


def plan(example, kernels, arch: str, rows=ROWS) -> Planner:
    planner = Planner(kernels, arch)
    platform = example.Platform.of(arch.removeprefix("cuda:"), UNITS.get(arch, 256))
    layer = example.Layer.make(max(rows), "cpu")
    for count in rows:
        q = torch.zeros((count, example.HEADS, example.HEAD_DIM), dtype=torch.bfloat16)
        example.step(planner, platform, layer, q)
    return planner


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "cuda:90"])
def test_every_launch_of_a_step_was_declared(example, kernels, arch):
    chosen = plan(example, kernels, arch).chosen.values()
    partial = "decode_partial_legacy" if arch == "gfx942" else "decode_partial_gfx950"
    assert {key.kernel for key in chosen} == {"pack_ragged", partial, "decode_reduce"}
    assert {key.target for key in chosen} == {Target.parse(arch)}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_example_serves_from_a_bundle_without_compiling(example, kernels, package, compile_kernel, tmp_path, arch):
    planner = plan(example, kernels, arch, rows=(4,))
    rows = []
    for key in planner.chosen.values():
        rows.append((key, compile_key(compile_kernel, kernels[key.kernel].declaration.function, key), {}))
    used = {key.kernel: kernels[key.kernel].parameters for key in planner.chosen.values()}
    path = tmp_path / f"decode.{arch}.aotk"
    path.write_bytes(pack(arch, rows, used))
    command = [
        sys.executable,
        ROOT / "examples" / "serve_decode.py",
        path,
        "--plan",
        arch,
        "--rows",
        "4",
        "--steps",
        "3",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(package)))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"16 launches of {len(rows)} variants, 0 missed" in done.stdout
    assert "Triton was not even imported" in done.stdout
