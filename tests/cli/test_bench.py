import jsonschema
import pytest
from making import GFX942, GFX950, SINGLE, packed, written

from aotkern import schemas
from aotkern.bench import Run, bundles, processes
from aotkern.bundle import Bundle
from aotkern.spec import VariantKey

VALID = jsonschema.Draft202012Validator(schemas.load("bench"))


@pytest.fixture
def files(sample, tmp_path):
    paths = []
    for target in (GFX942, GFX950):
        paths.append(tmp_path / f"scale.{target.arch}.aotk")
        paths[-1].write_bytes(packed(sample.build(target)))
    return paths


def test_bundles_are_measured(aotkern, files, tmp_path):
    answer = aotkern("bench", "bundle", *files, "--rounds", 2, "--save", tmp_path / "results", "--json")
    run = Run.from_json(answer.json("bench"))
    VALID.validate(run.to_json())
    assert Run.read(tmp_path / "results" / "user-bundle.json") == run
    assert run.command == "aotkern bench bundle scale.gfx942.aotk scale.gfx950.aotk"
    assert [name for name, _ in run.bundles] == ["scale.gfx942.aotk", "scale.gfx950.aotk"]
    assert [table.title.partition(":")[0] for table in run.tables] == [
        "size",
        "verification",
        "open, check every hash, load every variant",
        "launch on the null driver",
    ]
    for path in files:
        bundle = Bundle.open(path)
        cells = dict(zip(run.tables[0].columns[1:], run.tables[0].rows[files.index(path)].cells, strict=True))
        assert cells["variants"] == str(len(bundle.manifest.variants))
        assert cells["bundle"].median == path.stat().st_size
        assert cells["objects + manifest"].median > cells["bundle"].median
        assert run.tables[1].cell(path.name, "code verified").median > 0
    launched = [row.name for row in run.tables[3].rows]
    assert launched == ["scale.gfx942.aotk, scale", "scale.gfx950.aotk, negate", "scale.gfx950.aotk, scale"]


def test_a_device_that_is_not_there_is_said(aotkern, files):
    answer = aotkern("bench", "bundle", files[0], "--rounds", 1)
    assert answer.code == 0
    assert "scale.gfx942.aotk, null driver" in answer.out
    assert "scale.gfx942.aotk, hip device: not measured: " in answer.out


def test_two_bundles_of_one_name_are_told_apart(aotkern, files, tmp_path):
    other = tmp_path / "other" / files[0].name
    other.parent.mkdir()
    other.write_bytes(files[0].read_bytes())
    run = Run.from_json(aotkern("bench", "bundle", files[0], other, "--rounds", 1, "--json").json("bench"))
    assert [row.name for row in run.tables[0].rows] == [str(files[0]), str(other)]
    assert [name for name, _ in run.bundles] == ["scale.gfx942.aotk", "scale.gfx942.aotk (2)"]


@pytest.mark.parametrize(
    "key",
    [
        "k[hip:gfx942](x:*fp32:DS,n:i32:D,m:i32,u:u64,f:fp32,b:u1,C=4)",
        "k[hip:gfx942](x:*fp32,n:i64,m:i64:D,t(:*fp16:D,=1))",
    ],
)
def test_made_up_arguments_fit_the_variant(key):
    from aotkern.spec.key import flatten

    for _, spec in VariantKey.parse(key).arguments:
        value = bundles.made_up(spec)
        for path, leaf in flatten(spec):
            inner = value
            for place in path:
                inner = inner[place]
            if hasattr(leaf, "constant"):
                assert inner == leaf.constant
            elif leaf.is_pointer:
                assert (inner.address % 16 == 0) == leaf.divisible
                assert (inner.storage_bytes <= 2**31 - 1) == leaf.small
            elif isinstance(inner, int) and not isinstance(inner, bool):
                assert (inner % 16 == 0) == leaf.divisible


def test_a_build_is_measured_beside_a_plain_loop(aotkern, tmp_path):
    source = written(tmp_path / "source", SINGLE, "single.py").path
    arguments = ("bench", "build", source, "-j", 1, "-j", 2, "--rounds", 1, "--only", "store")
    answer = aotkern(*arguments, "--json")
    run = Run.from_json(answer.json("bench"))
    VALID.validate(run.to_json())
    assert run.command == "aotkern bench build single.py -t gfx942 --only 'store' --rounds 1"
    assert run.tables[0].title == "build of 1 variants for hip:gfx942, nothing reused"
    assert [row.name for row in run.tables[0].rows] == [
        "aotkern build, 1 job",
        "aotkern build, 2 jobs",
        "plain loop over triton.compile",
        "2 plain loops at once, a share each",
    ]
    one, two, loop = (run.tables[1].rows[place].cells for place in range(3))
    assert one[1].median > 50e6  # a worker that has imported Triton
    assert two[2].median > one[2].median
    assert loop[0].median > 50e6
    assert loop[1] is None
    assert not list(tmp_path.glob("source/*.aotk"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bundle", "absent.aotk"), "absent.aotk: expected a bundle that can be read"),
        (("bundle",), "Missing argument"),
        (("bundle", "damaged.aotk"), "damaged.aotk"),
        (("build", "absent.py"), "absent.py: expected a kernel file or folder, found nothing there"),
        (("build", "source.py", "-t", "gfx9"), "--target"),
        (("build", "source.py", "-t", "gfx950"), "expected targets that a kernel declares"),
        (("build", "source.py", "--only", "nope"), "expected targets that a kernel declares"),
        (("build", "source.py", "-j", "0"), "-j"),
        (("build", "other.md"), "a Python file, whose name ends in .py"),
    ],
)
def test_what_cannot_be_measured_is_said(aotkern, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.aotk").write_bytes(b"AOTKERN\0" + bytes(100))
    (tmp_path / "other.md").write_text("#")
    written(tmp_path, SINGLE, "source.py")
    answer = aotkern("bench", *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_a_failing_kernel_is_told_and_not_timed(aotkern, tmp_path):
    broken = SINGLE.replace("tl.store(x, V)", "tl.store(x, undefined)")
    answer = aotkern("bench", "build", written(tmp_path, broken, "broken.py").path, "--rounds", 1, "--json")
    assert answer.code == 2
    assert "undefined" in answer.err


def test_memory_of_children_is_seen():
    child = "x = bytearray(60_000_000); import time; time.sleep(0.4)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    import os
    import sys

    peak = processes.peak([sys.executable, "-c", parent], os.environ)
    assert peak.child > 60_000_000 > peak.parent
    assert peak.children == peak.child


def test_a_result_that_cannot_be_written_is_said(aotkern, files, tmp_path):
    (tmp_path / "file").write_text("")
    answer = aotkern("bench", "bundle", files[0], "--rounds", 1, "--save", tmp_path / "file" / "inside")
    assert answer.code == 2
    assert "a place that can be written" in answer.err


def test_shares_of_a_plain_loop_are_all_of_it_once(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    from aotkern.bench import plain
    from aotkern.build import compiler

    source = written(tmp_path, SINGLE.replace('"V": 1.0', '"V": Constexpr(*map(float, range(5)))'), "five.py")
    compiled = []
    monkeypatch.setattr(compiler, "plain", lambda kernel, key: compiled.append(str(key)))
    plain.main(["--share=0/1", str(GFX942), "--", str(source.path)])
    whole, compiled[:] = tuple(compiled), []
    for share in ("--share=0/2", "--share=1/2"):
        plain.main([share, str(GFX942), "store", "--", str(source.path)])
    assert len(whole) == 5
    assert compiled != list(whole)
    assert sorted(compiled) == sorted(whole)
