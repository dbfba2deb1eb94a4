"""Builds and audits never see an installation, and a counter proves that the compiler ran."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from making import GFX942, HEAD, SINGLE, built, edited, packed, written

from aotkern.build import stages
from aotkern.build.builder import publish

LOG = "answered.log"

INSTALLING = """
from pathlib import Path

import aotkern
from aotkern.target import Target
from aotkern.triton_bridge.paper import paper_device

HERE = Path({folder!r})


class Log:
    def write(self, *event):
        with (HERE / "answered.log").open("a") as file:
            file.write(repr(event))


{installed} = aotkern.install({bundle!r}, on_miss={on_miss!r}, sink=Log())
paper = paper_device(Target.parse("gfx942"))
paper.__enter__()
"""


def installing(folder, bundle, on_miss="jit", text=SINGLE):
    """A kernel source that installs a bundle when it is imported."""
    lines = INSTALLING.format(folder=str(folder), bundle=str(bundle), on_miss=on_miss, installed="INSTALLED")
    return written(folder / "source", edited(text, (HEAD, f"{HEAD}{lines}")))


@pytest.fixture
def bundle(tmp_path):
    """A bundle of the kernels that are built again below."""
    return publish(built(written(tmp_path / "before", SINGLE)).targets[GFX942], tmp_path / "bundles", "x", {}).path


@pytest.mark.parametrize("on_miss", ["jit", "error"])
def test_an_installed_bundle_answers_no_build(bundle, tmp_path, on_miss):
    text = SINGLE.replace('"V": 1.0', '"V": (1.0, 2.0)')
    result = built(installing(tmp_path, bundle, on_miss, edited(text, ('"V": (1.0, 2.0)', '"V": Constexpr(1.0, 2.0)'))))
    assert len(result.targets[GFX942].manifest.variants) == 2
    assert not (tmp_path / LOG).exists()


def test_a_bundle_that_is_damaged_or_gone_stops_no_build(tmp_path):
    (tmp_path / "bad.gfx942.aotk").write_bytes(b"no bundle")
    for name in ("bad.gfx942.aotk", "absent"):
        result = built(installing(tmp_path, tmp_path / name, "error"))
        assert packed(result.targets[GFX942]) == packed(built(written(tmp_path / "plain", SINGLE)).targets[GFX942])


@pytest.mark.parametrize("hook", ["sitecustomize.py", "hook.pth"])
def test_hooks_of_the_installation_and_the_environment_reach_no_worker(bundle, tmp_path, hook):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    paths = [*(path for path in sys.path if "site-packages" in path), str(Path(__file__).parents[2])]
    (site / "all.pth").write_text("\n".join(paths))
    act = f"import aotkern; aotkern.install({str(bundle)!r}, on_miss='error')"
    lines = {
        "sitecustomize.py": f"try:\n    {act}\nexcept ImportError:\n    pass\n",
        "hook.pth": f"import sys; {act}\n",
    }
    (site / hook).write_text(lines[hook])
    source = written(tmp_path / "new", SINGLE.replace('"V": 1.0', '"V": 7.0'))
    inject = Path(stages.__file__).parents[1] / "triton_bridge" / "inject"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(inject),
        "AOTKERN_BUNDLE": str(bundle),
        "AOTKERN_ON_MISS": "error",
        "AOTKERN_SERVED_EVENTS": str(tmp_path),
    }
    command = ["-m", "aotkern", "build", str(source.path), "-t", "gfx942", "-j1", "--no-cache", "-o", str(tmp_path)]
    done = subprocess.run([venv / "bin" / "python", *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert "1 compiled, 0 from the store, 0 failed" in done.stdout


ANSWERS = {
    "another compile": """
def answer(source, target, options):
    raise AssertionError("asked in the compiler's place")


triton.compile = triton.compiler.compile = triton.compiler.compiler.compile = answer
""",
    "a wrapper with Triton's function inside": """
import functools

import triton.compiler.compiler as where

@functools.wraps(where.compile)
def answer(*args, original=where.compile, **more):
    raise AssertionError("asked in the compiler's place")


where.compile = triton.compile = answer
""",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_another_answer_at_the_seam_is_not_asked(tmp_path, name):
    result = built(written(tmp_path, edited(SINGLE, (HEAD, f"{HEAD}{ANSWERS[name]}"))))
    assert packed(result.targets[GFX942]) == packed(built(written(tmp_path / "plain", SINGLE)).targets[GFX942])


def test_an_entry_of_a_cache_of_tritons_does_not_count_as_compiled(tmp_path):
    cached = f"""
import os

os.environ["TRITON_ALWAYS_COMPILE"] = "0"
os.environ["TRITON_CACHE_DIR"] = {str(tmp_path / "cache")!r}
"""
    source = written(tmp_path / "source", edited(SINGLE, (HEAD, f"{HEAD}{cached}")))
    assert len(built(source).seconds) == 1
    assert list((tmp_path / "cache").rglob("*.hsaco"))
    again = built(source)
    assert len(again.seconds) == 1  # each of its stages was counted: see `stages.Run.doubt`


def test_every_stage_must_run_and_the_bytes_be_the_last_ones():
    run = stages.Run(["ttir", "hsaco"], ["ttir", "hsaco"], b"code")
    assert run.doubt(b"code") == ""
    assert run.doubt(b"other") == "the compiler's stage hsaco returned other bytes than those that came out"
    assert "these ran: hsaco" in stages.Run(["ttir", "hsaco"], ["hsaco"], b"code").doubt(b"code")
    assert stages.Run().doubt(b"code") == "the compiler did not run for it: something answered in its place"
