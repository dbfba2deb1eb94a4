import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from making import GFX942, HEAD, SCALE, SINGLE, edited, repository, written

from aotkern.bundle import Bundle


@pytest.fixture
def source(tmp_path):
    return written(tmp_path / "source", SCALE, "scale.py").path


def test_a_build_makes_one_bundle_for_each_declared_target(aotkern, source, tmp_path):
    answer = aotkern("build", source, "-o", tmp_path / "out", "-j1", "--slowest")
    assert answer.code == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["scale.gfx942.aotk", "scale.gfx950.aotk"]
    lines = answer.out.splitlines()
    assert lines[0].split() == ["target", "variants", "objects", "code", "bundle", "file"]
    assert lines[1].split()[:2] == ["hip:gfx942", "2"]
    assert any(line.startswith("5 compiled, 0 from the store, 0 failed; ") for line in lines)
    assert "slowest variants:" in lines
    assert "compiling: 5 of 5 variants" in answer.err
    again = aotkern("build", source, "-o", tmp_path / "out", "-j1", "--json").json("build")
    assert (again["compiled"], again["reused"]) == (0, 5)
    assert [row["changed"] for row in again["bundles"]] == [False, False]
    fresh = aotkern("build", source, "-o", tmp_path / "more", "-j1", "--no-cache", "--json").json("build")
    assert (fresh["compiled"], fresh["reused"]) == (5, 0)
    assert [row["digest"] for row in fresh["bundles"]] == [row["digest"] for row in again["bundles"]]
    assert len(fresh["slowest"]) == 5
    stored = aotkern("cache", "--json").json("cache")
    assert (stored["folder"], stored["variants"]) == (str(tmp_path / "store" / "aotkern-store"), 5)
    assert aotkern("cache", "--clear").out.endswith(", cleared\n")
    assert aotkern("cache", "--json").json("cache")["variants"] == 0


def test_the_revision_is_told_in_the_bundle(aotkern, tmp_path):
    git = repository(tmp_path / "project")
    source = written(tmp_path / "project", SINGLE, "single.py")
    git("add", "-A")
    git("commit", "-qm", "first")
    assert aotkern("build", source.path, "-o", tmp_path / "out", "-j1", "--name", "mine").code == 0
    provenance = Bundle.open(tmp_path / "out" / "mine.gfx942.aotk").provenance
    assert provenance["revision"] == git("rev-parse", "HEAD")
    assert provenance["sources"] == "as committed"


def test_a_failed_variant_is_told_and_its_target_gets_no_bundle(aotkern, tmp_path):
    source = written(tmp_path, edited(SCALE, ("tl.store(x, -tl.load(x))", "tl.store(x, undefined)")), "scale.py")
    answer = aotkern("build", source.path, "-o", tmp_path / "out", "-j1", "--json")
    document = answer.json("build", 1)
    assert document["verdict"] == "findings"
    assert [row["key"] for row in document["failures"]] == ["negate[hip:gfx950](x:*fp32:D){num_warps=1}"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["scale.gfx942.aotk"]
    text = aotkern("build", source.path, "-o", tmp_path / "out", "-j1")
    assert "failed: negate[hip:gfx950](x:*fp32:D){num_warps=1}: " in text.out
    assert text.code == 1


def test_notes_are_told(aotkern, tmp_path):
    source = written(tmp_path, edited(SINGLE, ("tl.store(x, V)", "tl.store(x, 5.0)")), "single.py")
    assert (
        "note: kernel store, parameter V: it is never read" in aotkern("build", source.path, "-o", tmp_path, "-j1").out
    )


def test_without_a_target_everything_that_is_declared_is_built(aotkern, tmp_path):
    source = written(tmp_path, edited(SINGLE, ('"gfx942"', '"cuda:80", "cuda:120"')), "single.py")
    answer = aotkern("build", source.path, "-o", tmp_path / "out", "-j1", "--json")
    document = answer.json("build")
    assert [row["target"] for row in document["bundles"]] == ["cuda:80", "cuda:120"]
    assert document["left_out"] == []


def test_nothing_declared_is_no_success(aotkern, source, tmp_path):
    answer = aotkern("build", source, "--only", "absent", "-o", tmp_path / "out", "-j1", "--json")
    assert answer.json("build", 2)["verdict"] == "could not tell"
    answer = aotkern("build", source, "--only", "absent", "-o", tmp_path / "out", "-j1")
    assert answer.out == "nothing was built: no variant is declared for hip:gfx942, hip:gfx950\n"


def test_a_declared_variant_that_fails_costs_its_target_unless_the_build_is_to_go_on(aotkern, tmp_path):
    text = edited(SINGLE, ('"V": 1.0', '"V": Constexpr(1.0, "text")'))
    source = written(tmp_path, text, "single.py")
    answer = aotkern("build", source.path, "-t", "gfx942", "-o", tmp_path / "out", "-j1")
    assert answer.code == 1
    assert answer.out.splitlines()[-1] == "incomplete: 1 variants failed; no bundle for hip:gfx942"
    assert not (tmp_path / "out").exists()
    answer = aotkern("build", source.path, "--keep-going", "--strict", "-t", "gfx942", "-o", tmp_path / "out", "-j1")
    assert answer.code == 1
    assert answer.out.splitlines()[-1].endswith("--strict: no bundle was written")
    assert not (tmp_path / "out").exists()
    answer = aotkern("build", source.path, "--keep-going", "-t", "gfx942", "-o", tmp_path / "out", "-j1", "--json")
    document = answer.json("build", 1)
    assert [(row["target"], row["variants"]) for row in document["bundles"]] == [("hip:gfx942", 1)]
    (left,) = document["left_out"]
    assert (left["kind"], left["target"]) == ("compile", "hip:gfx942")
    assert left["what"].startswith("store[hip:gfx942](x:*fp32:D")


def test_a_variable_reaches_kernel_sources_and_the_manifest(aotkern, tmp_path):
    text = edited(SINGLE, ("KERNELS = (", 'import os\nFACTOR = float(os.environ["MY_FACTOR"])\nKERNELS = ('))
    source = written(tmp_path, edited(text, ('"V": 1.0', '"V": FACTOR')), "single.py")
    arguments = ("build", source.path, "-o", tmp_path / "out", "-j1")
    assert "MY_FACTOR" in aotkern(*arguments).err
    assert aotkern(*arguments, "--env", "MY_FACTOR=3").code == 0
    shown = aotkern("show", next((tmp_path / "out").iterdir()), "--json").json("show")
    assert shown["manifest"]["environment"]["MY_FACTOR"] == "3"
    assert "V=3.0" in shown["manifest"]["variants"][0]["key"]
    for wrong in ("HOME=/", "PYTHONPATH=x", "AOTKERN_CACHE=x", "=x", "MY_ABSENT"):
        refused = aotkern(*arguments, "--env", wrong)
        assert (refused.code, refused.out) == (2, "")
        assert "--env: expected " in refused.err


def test_a_named_target_that_nothing_is_declared_for_is_refused(aotkern, source, tmp_path):
    answer = aotkern("build", source, "-t", "gfx942", "-t", "cuda:90", "-o", tmp_path / "out", "-j1")
    assert (answer.code, answer.out) == (2, "")
    assert "--target: expected targets that a kernel declares, found no variant for cuda:90" in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "gfx900"), "--target: expected a target whose limits are known"),
        (("-t", "mi300"), "--target: expected a target such as hip:gfx942"),
        (("-j", "0"), "Invalid value for '--jobs'"),
        (("--timeout", "soon"), "Invalid value for '--timeout'"),
        (("--max-variants", "1", "-t", "gfx942"), "at most 1 variants for hip:gfx942, found 2"),
        (("--name", "../x"), "--name: expected a file name without a folder, found '../x'"),
        (("--no-such-option",), "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_arguments_are_refused(aotkern, source, tmp_path, arguments, message):
    answer = aotkern("build", source, "-o", tmp_path / "out", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "expected a kernel source that can be imported, found SyntaxError"),
        ("X = 1\n", "expected a tuple KERNELS of aotkern.spec.Kernel, found no declaration"),
        (edited(SINGLE, ('"V": 1.0', '"W": 1.0')), "kernel store, space 1: V: expected a choice for this parameter"),
        (edited(SINGLE, ('"fp32", "any"', '"fp33", "any"')), "argument type: expected one of"),
        (edited(SINGLE, ('("gfx942",)', '("gfx9",)')), "targets: expected a target"),
        (
            edited(SINGLE, ("KERNELS = (", "from pathlib import Path\nKERNELS = ("), ('"V": 1.0', '"V": Path()')),
            "of type pathlib.PosixPath",
        ),
    ],
    ids=range(6),
)
def test_a_wrong_source_is_refused_by_name(aotkern, tmp_path, text, message):
    source = written(tmp_path, text, "wrong.py")
    answer = aotkern("build", source.path, "-o", tmp_path / "out", "-j1")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_a_source_that_is_not_there_is_refused(aotkern, tmp_path):
    answer = aotkern("build", tmp_path / "gone.py")
    assert (answer.code, answer.err) == (
        2,
        f"aotkern: {tmp_path}/gone.py: expected a kernel file or folder, found nothing there\n",
    )


def test_an_output_folder_that_is_a_file_is_refused(aotkern, tmp_path):
    source = written(tmp_path, SINGLE, "single.py")
    answer = aotkern("build", source.path, "-j1", "-o", source.path)
    assert answer.code == 2
    assert "expected a place that can be written, found" in answer.err


def test_without_triton_the_missing_tool_is_named(tmp_path):
    written(tmp_path / "absent" / "triton", "raise ModuleNotFoundError(\"No module named 'triton'\")\n", "__init__.py")
    source = written(tmp_path, "KERNELS = ()\n", "empty.py")
    done = subprocess.run(
        [sys.executable, "-m", "aotkern", "build", str(source.path), "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "absent"), *sys.path])},
    )
    assert done.returncode == 2
    assert done.stderr == "aotkern: triton is needed to compile: pip install 'aotkern[build]'\n"


def test_tuples_and_functions_survive_the_whole_way(aotkern, tmp_path):
    text = (
        HEAD
        + """
@triton.jit
def twice(v):
    return v * 2


@triton.jit
def kernel(x, shape, F: tl.constexpr):
    tl.store(x + shape[1], F(shape[0]))


ROWS = Tuple(Float(), Int(classes=("1", "any")), Constexpr(3))
KERNELS = (Kernel(kernel, Space(("gfx942",), {"x": Pointer("fp32", "any"), "shape": ROWS, "F": Constexpr(twice)})),)
"""
    )
    assert aotkern("build", written(tmp_path, text, "tuples.py").path, "-o", tmp_path, "-j1").code == 0
    manifest = Bundle.open(tmp_path / "tuples.gfx942.aotk").manifest
    keys = [variant.key for variant in manifest.variants]
    assert [manifest.by_text[str(key)].text for key in keys] == [variant.text for variant in manifest.variants]
    assert sorted(str(key).partition(":D,")[2].partition("#")[0] for key in keys) == [
        "shape(:fp32,:i32,=3),F=&tuples:twice",
        "shape(:fp32,=1,=3),F=&tuples:twice",
    ]
    assert manifest.target == GFX942
