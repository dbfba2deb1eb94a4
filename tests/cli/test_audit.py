import json

import pytest

pytest.importorskip("triton")

from making import GFX942, GFX950, SCALE, SINGLE, edited, packed, repository, written


@pytest.fixture
def project(tmp_path):
    """`SCALE`, committed: (source, git)."""
    git = repository(tmp_path / "project")
    source = written(tmp_path / "project" / "kernels", SCALE, "scale.py")
    git("add", "-A")
    git("commit", "-qm", "first")
    return source.path, git


@pytest.fixture
def golden(sample, tmp_path):
    path = tmp_path / "gfx942.json"
    path.write_bytes(sample.build(GFX942).manifest.to_bytes())
    return path


def test_an_edit_for_one_target_leaves_the_other_alone(aotkern, project):
    source, git = project
    source.write_text(edited(SCALE, ("tl.store(x, -tl.load(x))", "tl.store(x, 0.5 - tl.load(x))")))
    answer = aotkern(
        "audit", "identity", source, "-t", "gfx942", "-t", "gfx950", "--baseline-ref", "HEAD", "-j1", "--json"
    )
    old, new = answer.json("audit", 1)["reports"]
    assert (old["target"], old["verdict"], old["counts"]) == ("hip:gfx942", "clean", {"identical": 2})
    assert (new["verdict"], new["counts"]) == ("findings", {"identical": 2, "different": 1})
    assert old["baseline"] == f"HEAD ({git('rev-parse', 'HEAD')[:12]})"
    (changed,) = [row for row in new["variants"] if row["state"] == "different"]
    assert changed["key"] == "negate[hip:gfx950](x:*fp32:D){num_warps=1}"
    assert changed["details"]["first_difference"].startswith(".text at byte 0x")


def test_the_proof_is_told_in_words(aotkern, project):
    source, _ = project
    source.write_text(edited(SCALE, ("# what one value becomes", "# said otherwise")))
    answer = aotkern("audit", "identity", source, "-t", "gfx942", "--baseline-ref", "HEAD", "-j1")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "identity: clean (both sides compiled in private, empty caches)"
    assert answer.out.startswith("hip:gfx942: 2 identical (today's sources against HEAD (")


def test_a_renamed_folder_is_compared_by_its_golden_manifest(aotkern, golden, tmp_path):
    source = written(tmp_path / "renamed folder", SCALE, "renamed.py")
    assert aotkern("audit", "identity", source.path, "-t", "gfx942", "--baseline", golden, "-j1").code == 0


def test_a_bundle_is_judged_without_building(aotkern, golden, sample, tmp_path, monkeypatch):
    bundle = tmp_path / "x.aotk"
    bundle.write_bytes(packed(sample.build(GFX942)))
    monkeypatch.setattr("aotkern.build.builder.compile_targets", lambda *_: pytest.fail("something was built"))
    answer = aotkern("audit", "identity", "-t", "gfx942", "--baseline", golden, "--bundle", bundle, "--json")
    assert answer.json("audit")["reports"][0]["counts"] == {"identical": 2}


def test_another_toolchain_is_no_proof(aotkern, golden, sample, tmp_path):
    value = golden.read_text().replace('"triton":"', '"triton":"0.')
    golden.write_text(value)
    bundle = tmp_path / "x.aotk"
    bundle.write_bytes(packed(sample.build(GFX942)))
    answer = aotkern("audit", "identity", "-t", "gfx942", "--baseline", golden, "--bundle", bundle)
    assert answer.code == 2
    assert "could not tell: baseline and candidate were not compiled alike (triton: 0.3" in answer.out
    assert answer.out.splitlines()[-1] == "identity: could not tell"


def test_nothing_compared_is_no_proof(aotkern, golden, sample, tmp_path):
    bundle = tmp_path / "x.aotk"
    bundle.write_bytes(packed(sample.build(GFX950)))
    answer = aotkern("audit", "identity", "-t", "gfx942", "--baseline", golden, "--bundle", bundle, "--json")
    (report,) = answer.json("audit", 2)["reports"]
    assert report["obstacle"] == "nothing was compared: the candidate has no variant for hip:gfx942"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "gfx942"), "--baseline, --baseline-ref: expected one of the two, found neither"),
        (("-t", "gfx942", "--baseline", "x", "--baseline-ref", "y"), "expected one of the two, found both"),
        (("-t", "gfx942", "-t", "gfx950", "--baseline", "x"), "--target: expected one target with --baseline, found 2"),
        (("--baseline", "x"), "Missing option '--target'"),
        (
            ("-t", "gfx942", "--baseline", "gone.json"),
            "aotkern: gone.json: expected a bundle or a manifest, found No such file",
        ),
        (("-t", "gfx942", "--baseline", "g", "--bundle", "b"), "KERNELS: expected none, with --bundle and --baseline"),
        (("-t", "gfx942", "--baseline-ref", "no-such-branch"), "git rev-parse --verify in "),
    ],
    ids=range(7),
)
def test_wrong_arguments_are_refused(aotkern, project, arguments, message):
    answer = aotkern("audit", "identity", project[0], "-j1", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_outside_of_a_repository_there_is_no_baseline_revision(aotkern, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    source = written(tmp_path / "loose", SINGLE).path
    answer = aotkern("audit", "identity", source, "-t", "gfx942", "--baseline-ref", "HEAD", "-j1")
    assert answer.code == 2
    assert "expected success, found fatal: not a git repository" in answer.err


def test_a_source_that_no_longer_compiles_is_no_proof(aotkern, project):
    source, _ = project
    source.write_text(edited(SCALE, ("value * FACTOR", "value * undefined")))
    answer = aotkern("audit", "identity", source, "-t", "gfx942", "--baseline-ref", "HEAD", "-j1")
    assert answer.code == 2
    assert answer.err.splitlines()[-1]
    assert "aotkern: scale[hip:gfx942](" in answer.err


def test_reproducible(aotkern, tmp_path):
    source = written(tmp_path, SINGLE, "single.py").path
    document = aotkern("audit", "reproducible", source, "-t", "gfx942", "-j1", "--json").json("reproducible")
    assert (document["verdict"], document["variants"], document["broken"]) == ("clean", 1, {})
    source.write_text(edited(SINGLE, ('"V": 1.0', '"V": float(len(__file__))')))
    answer = aotkern("audit", "reproducible", source, "-t", "cuda:90", "-j1")
    assert answer.code == 2
    assert answer.out.splitlines()[-1] == "reproducible: could not tell"
    assert json.dumps(document)
