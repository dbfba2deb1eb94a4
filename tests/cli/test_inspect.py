import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from making import GFX942, GFX950, edited, packed
from test_bundle import forged

from aotkern.bundle import Bundle
from aotkern.manifest import Manifest


@pytest.fixture
def bundle(sample, tmp_path):
    """The gfx942 sample as a file."""
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(packed(sample.build(GFX942), {"revision": "abc"}))
    return path


@pytest.fixture
def other(sample, tmp_path):
    """The gfx950 sample as a file."""
    path = tmp_path / "scale.gfx950.aotk"
    path.write_bytes(packed(sample.build(GFX950)))
    return path


def test_verify_says_what_was_checked(aotkern, bundle, other):
    answer = aotkern("verify", bundle, other)
    assert answer.code == 0
    first, second = answer.out.splitlines()
    assert first.startswith(f"ok {bundle}: hip:gfx942, 2 variants, ")
    assert second.startswith(f"ok {other}: hip:gfx950, 3 variants, ")


def test_verify_as_json(aotkern, bundle, other):
    document = aotkern("verify", bundle, other, "--json").json("verify")
    assert [row["target"] for row in document["bundles"]] == ["hip:gfx942", "hip:gfx950"]
    assert document["bundles"][0]["digest"] == str(Bundle.open(bundle).digest)


def test_verify_names_file_place_expectation_and_finding(aotkern, bundle, other):
    data = bytearray(bundle.read_bytes())
    data[-1] ^= 1
    bundle.write_bytes(data)
    answer = aotkern("verify", other, bundle)
    assert answer.code == 1
    (refused,) = [line for line in answer.out.splitlines() if line.startswith("REFUSED")]
    assert refused.startswith(f"REFUSED {bundle}: block 1 at byte ")
    assert ": expected sha256:" in refused
    assert ", found sha256:" in refused
    document = aotkern("verify", bundle, "--json").json("verify", 1)
    assert document["bundles"][0]["problems"][0]["where"].startswith(f"{bundle}: block 1")


def test_the_target_is_judged_by_the_elf_and_not_by_the_name(aotkern, sample, tmp_path):
    old, new = sample.build(GFX942), sample.build(GFX950)
    entry = old.manifest.objects[0]
    facts = {**entry.facts, "target": "hip:gfx950"}
    text = edited(old.manifest.variants[0].text, ("hip:gfx942", "hip:gfx950"))
    lie = Manifest.make(
        GFX950,
        new.manifest.toolchain,
        new.manifest.environment,
        [kernel for kernel in new.manifest.kernels if kernel.name == "scale"],
        {entry.digest: replace(entry, facts=facts)},
        [
            (
                replace(old.manifest.variants[0], text=text, object=entry.digest),
                next(iter(new.manifest.options.values())),
            )
        ],
    )
    path = tmp_path / "planted.gfx950.aotk"
    path.write_bytes(forged(lie, [old.objects[entry.digest]], [1]))
    answer = aotkern("verify", path)
    assert answer.code == 1
    assert "expected an ELF for hip:gfx950, found one for hip:gfx942" in answer.out


@pytest.mark.parametrize("command", ["verify", "show", "manifest"])
def test_a_file_that_is_not_there(aotkern, tmp_path, command):
    answer = aotkern(command, tmp_path / "gone.aotk")
    assert (answer.code, answer.out) == (2, "")
    assert (
        answer.err
        == f"aotkern: {tmp_path}/gone.aotk: expected a bundle that can be read, found No such file or directory\n"
    )


@pytest.mark.parametrize("command", ["show", "manifest"])
def test_what_is_no_bundle_is_not_shown(aotkern, tmp_path, command):
    path = tmp_path / "x.aotk"
    path.write_bytes(b"\x7fELF" + bytes(100))
    answer = aotkern(command, path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"aotkern: {path}: byte 0: expected the bundle mark")


def test_show_gives_an_overview(aotkern, bundle):
    answer = aotkern("show", bundle)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split() == ["target", "hip:gfx942"]
    assert any(line.split()[:2] == ["scale", "2"] for line in lines)
    assert lines[-1].split() == ["revision", "abc"]


def test_show_as_json(aotkern, bundle):
    document = aotkern("show", bundle, "--json").json("show")
    assert document["provenance"] == {"revision": "abc"}
    assert len(document["manifest"]["variants"]) == 2


def test_show_lists_keys(aotkern, bundle):
    answer = aotkern("show", bundle, "--variants")
    assert answer.out.splitlines() == [variant.text for variant in Bundle.open(bundle).manifest.variants]


def test_show_one_variant(aotkern, bundle):
    entry = Bundle.open(bundle).manifest.variants[0]
    assert f"key: {entry.text}" in aotkern("show", bundle, "--variant", entry.text).out
    assert "float atomics, whose order no launch repeats: none" in aotkern("show", bundle, "--variant", entry.text).out
    document = aotkern("show", bundle, "--variant", "n:i32:D", "--json").json("variant")
    assert document["float_atomics"] == []
    assert document["key"] == "scale[hip:gfx942](x:*fp32:D,out:*fp32:D,n:i32:D,BLOCK=64){num_warps=1}"
    assert document["options"]["num_warps"] == "1"


@pytest.mark.parametrize(("part", "matches"), [("n:i32", 2), ("nothing like that", 0)])
def test_a_part_that_names_no_single_variant_is_refused(aotkern, bundle, part, matches):
    answer = aotkern("show", bundle, "--variant", part)
    assert answer.code == 2
    assert f"--variant: expected a key, or a part that one key has, found {matches} matches" in answer.err


@pytest.mark.parametrize(
    "arguments", [("show",), ("show", "--variant", "n:i32:D"), ("show", "--json"), ("manifest",)], ids=" ".join
)
def test_a_manifest_that_contradicts_itself_is_refused_and_not_shown(aotkern, sample, tmp_path, arguments):
    build = sample.build(GFX942)
    lie = replace(build.manifest, options={})
    path = tmp_path / "x.aotk"
    path.write_bytes(forged(lie, [b"".join(build.objects[e.digest] for e in lie.objects)], [len(lie.objects)]))
    answer = aotkern(arguments[0], path, *arguments[1:])
    assert (answer.code, answer.out) == (2, "")
    assert "expected options from the table" in answer.err


def test_manifest_prints_the_canonical_bytes(aotkern, bundle, tmp_path):
    data = Bundle.open(bundle).manifest.to_bytes()
    assert aotkern("manifest", bundle).out.encode() == data
    assert aotkern("manifest", bundle, "--json").json("manifest") == json.loads(data)
    out = tmp_path / "golden.json"
    assert aotkern("manifest", bundle, "--out", out) == type(aotkern("verify", bundle))(0, "", "")
    assert out.read_bytes() == data


def test_a_manifest_that_cannot_be_written(aotkern, bundle, tmp_path):
    answer = aotkern("manifest", bundle, "-o", tmp_path / "no" / "folder.json")
    assert answer.code == 2
    assert "expected a file that can be written, found No such file or directory" in answer.err


def test_diff_of_a_bundle_with_itself_and_its_manifest(aotkern, bundle, tmp_path):
    golden = tmp_path / "golden.json"
    aotkern("manifest", bundle, "-o", golden)
    for pair in ((bundle, bundle), (golden, bundle), (bundle, golden), (golden, golden)):
        answer = aotkern("diff", *pair)
        assert answer.code == 0
        assert answer.out.startswith("hip:gfx942: 2 identical (")
    document = aotkern("diff", golden, bundle, "--json").json("identity")
    assert (document["verdict"], document["counts"]) == ("clean", {"identical": 2})


def test_diff_of_two_targets_tells_nothing(aotkern, bundle, other):
    answer = aotkern("diff", bundle, other)
    assert answer.code == 2
    assert "could not tell: the baseline is for hip:gfx942, the candidate for hip:gfx950" in answer.out
    assert aotkern("diff", bundle, other, "--json").json("identity", 2)["variants"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a JSON document"),
        (b"[1,2", "a JSON document"),
        (
            b'{"format":"aotkern.manifest","version":9}',
            "'aotkern.manifest' version 1, found 'aotkern.manifest' version 9",
        ),
        (b"\x80\x04pickle", "a JSON document"),
    ],
    ids=repr,
)
def test_a_baseline_that_is_no_manifest(aotkern, bundle, tmp_path, content, message):
    path = tmp_path / "golden.json"
    path.write_bytes(content)
    answer = aotkern("diff", path, bundle)
    assert answer.code == 2
    assert answer.err.startswith(f"aotkern: {path}")
    assert message in answer.err


def test_a_folder_is_no_side(aotkern, bundle, tmp_path):
    answer = aotkern("diff", tmp_path, bundle)
    assert (answer.code, answer.err) == (
        2,
        f"aotkern: {tmp_path}: expected a bundle or a manifest, found Is a directory\n",
    )


@pytest.mark.parametrize("arguments", [("show", "--json"), ("manifest",), ("show", "--variants")], ids=" ".join)
def test_a_reader_that_goes_away_changes_no_verdict(bundle, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "aotkern", arguments[0], str(bundle), *arguments[1:]],
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_variant_is_disassembled(aotkern, bundle):
    pytest.importorskip("rocm.llvm")
    key = aotkern("show", bundle, "--variants").out.splitlines()[0]
    answer = aotkern("show", bundle, "--asm", key)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == key
    assert any("s_endpgm" in line for line in lines)
    document = aotkern("show", bundle, "--asm", key, "--json").json("listing")
    assert len(document["instructions"]) == len(lines) - 1
    assert aotkern("show", bundle, "--asm", "no such variant").code == 2


def test_the_static_check_is_a_command(aotkern, bundle):
    pytest.importorskip("rocm.llvm")
    assert aotkern("audit", "static", bundle).out.endswith("static: clean\n")
    assert aotkern("audit", "static", bundle, "--json").json("static")["findings"] == []
