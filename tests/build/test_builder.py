import os
from dataclasses import replace

import pytest

pytest.importorskip("triton")

from making import GFX942, GFX950, SCALE, SINGLE, SM90, built, edited, packed, request, written

from aotkern.build.builder import Step, compile_targets, publish
from aotkern.bundle import Bundle
from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError


def test_the_manifest_says_what_was_built_and_by_what(sample):
    manifest = sample.build(GFX942).manifest
    manifest.check("x", manifest.to_bytes())
    assert manifest.target == GFX942
    assert manifest.environment == {"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_DISABLE_LINE_INFO": "1"}
    assert set(manifest.toolchain) == {"amd_codegen", "triton", "triton_digest"}
    assert [kernel.name for kernel in manifest.kernels] == ["scale"]
    assert [kernel.name for kernel in sample.build(GFX950).manifest.kernels] == ["negate", "scale"]
    assert {row["num_warps"].text for row in manifest.options.values()} == {"1"}


def test_nothing_of_this_machine_is_in_a_bundle(sample, tmp_path):
    bundle = sample.bundle(GFX950)
    text = bundle.manifest.to_bytes() + b"".join(bundle.object(entry.digest) for entry in bundle.manifest.objects)
    for word in (str(sample.source.path.parent), "/tmp", "site-packages", "scale.py"):
        assert word.encode() not in text


def test_variants_that_came_out_equal_share_an_object(tmp_path):
    # V is never read: two variants, one code object.
    text = edited(SINGLE, ("tl.store(x, V)", "tl.store(x, 5.0)"), ('"V": 1.0', '"V": Constexpr(1.0, 2.0)'))
    result = built(written(tmp_path, text))
    build = result.targets[GFX942]
    assert (len(build.manifest.variants), len(build.objects)) == (2, 1)
    assert [note.partition(":")[0] for note in result.notes] == ["kernel store, parameter V"]


def test_equal_kernels_of_two_modules_have_two_names_and_one_object(tmp_path):
    for name in ("mod_a", "mod_b"):
        written(tmp_path, SINGLE, f"{name}.py")
    source = written(tmp_path, edited(SINGLE, ('"V": 1.0', '"V": 2.0')), "mod_c.py")
    build = built(replace(source, path=tmp_path)).targets[GFX942]
    assert [variant.kernel for variant in build.manifest.variants] == ["mod_a.store", "mod_b.store", "mod_c.store"]
    first, second, third = (variant.object for variant in build.manifest.variants)
    assert first == second != third


def test_jobs_and_order_do_not_reach_the_bytes(sample):
    again = built(sample.source, GFX950, GFX942, jobs=2, reverse=True)
    for target in (GFX942, GFX950):
        assert packed(again.targets[target]) == sample.bundle(target).data


def test_the_callers_environment_does_not_reach_the_bytes(sample, tmp_path):
    hostile = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_DISABLE_LINE_INFO": "0",
        "TRITON_DEBUG": "1",
        "TRITON_CACHE_DIR": str(tmp_path),
        "TRITON_KERNEL_OVERRIDE": "1",
        "TRITON_OVERRIDE_DIR": str(tmp_path),
        "AMDGCN_USE_BUFFER_OPS": "0",
        "AMDGCN_ENABLE_DUMP": "1",
        "DISABLE_LLVM_OPT": "1",
        "PYTHONHASHSEED": "77",
        "PYTHONOPTIMIZE": "1",
    }
    result = compile_targets(replace(request(sample.source, GFX942), inherited=hostile))
    assert packed(result.targets[GFX942]) == sample.bundle(GFX942).data
    assert list(tmp_path.iterdir()) == []


def test_a_binary_planted_in_a_shared_triton_cache_is_not_read(sample, tmp_path, monkeypatch):
    # Fill a cache as a user's would be, then replace every binary in it.
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aotkern.build.registry import load

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    kernel = next(k for k in load([sample.source]) if k.declaration.name == "scale")
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    attributes = {(place,): [["tt.divisibility", 16]] for place in (0, 1)}
    source = ASTSource(kernel.declaration.function, signature, {(3,): 64}, attributes)
    triton.compile(source, GPUTarget("hip", "gfx942", 64), {"num_warps": 1})
    files = list(tmp_path.rglob("*.hsaco"))
    assert files
    for path in files:
        path.write_bytes(b"\x7fELF planted")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    result = compile_targets(replace(request(sample.source, GFX942), inherited=dict(os.environ)))
    assert packed(result.targets[GFX942]) == sample.bundle(GFX942).data


def test_two_processes_with_other_hash_seeds_write_the_same_manifest(sample):
    manifests = set()
    for seed in ("0", "1"):
        result = compile_targets(request(sample.source, GFX942, overrides={"PYTHONHASHSEED": seed}))
        manifests.add(result.targets[GFX942].manifest.to_bytes())
    assert manifests == {sample.build(GFX942).manifest.to_bytes()}


def test_a_target_with_a_failure_gets_no_bundle_and_hides_no_other(tmp_path):
    text = edited(SCALE, ("tl.store(x, -tl.load(x))", "tl.store(x, undefined)"))
    steps = []
    result = compile_targets(request(written(tmp_path, text), GFX942, GFX950), steps.append)
    assert list(result.targets) == [GFX942]
    (error,) = result.failures
    assert error.key == "negate[hip:gfx950](x:*fp32:D){num_warps=1}"
    assert "undefined is not defined" in error.reason
    assert [(step.done, step.total) for step in steps] == [(n, 5) for n in range(1, 6)]
    assert [step.error != "" for step in steps].count(True) == 1
    assert all(isinstance(step, Step) for step in steps)


def test_a_wrong_option_fails_its_variants_and_no_others(tmp_path):
    text = edited(SINGLE, ('"V": 1.0}, options={"num_warps": 1}', '"V": 1.0}, options={"num_wraps": 1}'))
    result = compile_targets(request(written(tmp_path, text)))
    (error,) = result.failures
    assert error.key == "store[hip:gfx942](x:*fp32:D,V=1.0){num_wraps=1}"
    assert "unknown option num_wraps" in error.reason
    assert not result.targets


def test_what_was_asked_and_what_took_effect_are_both_recorded(tmp_path):
    text = edited(SINGLE, ('"gfx942"', '"gfx950"'), ('"num_warps": 1', '"kpack": 2'))
    manifest = built(written(tmp_path, text), GFX950).targets[GFX950].manifest
    (variant,) = manifest.variants
    assert dict(variant.key.options)["kpack"].text == "2"
    assert manifest.options[variant.options]["kpack"].text == "1"


def test_too_many_variants_are_refused_with_the_widest_argument(tmp_path):
    text = edited(SINGLE, ('"V": 1.0', '"V": Constexpr(*range(40))'))
    with pytest.raises(
        InputError, match="at most 39 variants for hip:gfx942, found 40; V alone has 40 values: could it"
    ):
        compile_targets(request(written(tmp_path, text), limit=39))


def test_time_is_told_for_each_variant(sample):
    result = sample.compilation
    assert set(result.seconds) == {
        v.text for target in (GFX942, GFX950) for v in sample.build(target).manifest.variants
    }
    assert result.wall > 0
    assert [seconds for _, seconds in result.slowest] == sorted(result.seconds.values(), reverse=True)


def test_a_target_that_nothing_is_declared_for_is_left_out(sample):
    assert list(built(sample.source, SM90, GFX942).targets) == [GFX942]


def test_publishing_an_equal_bundle_leaves_it_untouched(sample, tmp_path):
    build = sample.build(GFX942)
    first = publish(build, tmp_path, "scale", {})
    before = first.path.stat()
    again = publish(build, tmp_path, "scale", {})
    assert (first.changed, again.changed) == (True, False)
    assert first.path.stat().st_mtime_ns == before.st_mtime_ns
    assert again.digest == Bundle.open(first.path).digest
    assert publish(build, tmp_path, "scale", {"revision": "other"}).changed


def test_publishing_replaces_a_damaged_bundle(sample, tmp_path):
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(b"damaged")
    assert publish(sample.build(GFX942), tmp_path, "scale", {}).changed
    Bundle.open(path).verify()


def test_a_folder_that_cannot_be_written_is_named(sample, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/scale\.gfx942\.aotk: expected a place that can be written, found"):
        publish(sample.build(GFX942), tmp_path / "file", "scale", {})


def test_the_content_digest_covers_all_that_a_variant_is_made_from(sample):
    manifest = sample.build(GFX950).manifest
    for variant in manifest.variants:
        options = {name: constant.text for name, constant in manifest.options[variant.options].items()}
        source = str(manifest.kernel(variant.kernel).source)
        made_from = [source, variant.text, options, dict(manifest.environment), dict(manifest.toolchain)]
        assert variant.content == Digest.of(dumps(made_from).encode())


def test_there_are_as_many_workers_as_jobs_while_one_hashes_the_toolchain(sample, started):
    compile_targets(request(sample.source, GFX942, GFX950, jobs=2))
    assert len(started) == 2


@pytest.mark.parametrize("hint", ["right", "absent", "damaged", "of another build", "none"])
def test_a_hint_of_what_was_built_before_changes_nothing_but_time(sample, tmp_path, started, hint):
    first = compile_targets(request(sample.source, GFX942, jobs=2, store=tmp_path / "store"))
    place = publish(first.targets[GFX942], tmp_path, "scale", {}).path
    if hint == "absent":
        place.unlink()
    elif hint == "damaged":
        place.write_bytes(place.read_bytes()[:-1])
    elif hint == "of another build":
        place.write_bytes(packed(built(written(tmp_path, SINGLE)).targets[GFX942]))
    before = len(started)
    again = compile_targets(
        request(
            sample.source, GFX942, jobs=2, store=tmp_path / "store", before=() if hint == "none" else (place, tmp_path)
        )
    )
    assert again.targets[GFX942].manifest == first.targets[GFX942].manifest
    assert dict(again.targets[GFX942].objects) == dict(first.targets[GFX942].objects)
    assert (again.reused, len(again.seconds)) == (2, 0)
    # With a hint a second worker waits for something to compile, and nothing is to be compiled.
    assert len(started) - before == (2 if hint == "none" else 1)


def test_a_hint_does_not_hide_a_changed_source(tmp_path):
    source = written(tmp_path, SINGLE)
    store = tmp_path / "store"
    first = compile_targets(request(source, GFX942, jobs=2, store=store))
    place = publish(first.targets[GFX942], tmp_path, "scale", {}).path
    written(tmp_path, edited(SINGLE, ("tl.store(x, V)", "tl.store(x, V + 1)")))
    again = compile_targets(request(source, GFX942, jobs=2, store=store, before=(place,)))
    assert (again.reused, len(again.seconds)) == (0, 1)
    assert again.targets[GFX942].objects.keys() != first.targets[GFX942].objects.keys()


def test_a_hint_without_a_store_is_not_followed(sample, tmp_path):
    first = compile_targets(request(sample.source, GFX942, jobs=1, store=tmp_path / "store"))
    place = publish(first.targets[GFX942], tmp_path, "scale", {}).path
    again = compile_targets(request(sample.source, GFX942, jobs=1, before=(place,)))
    assert (again.reused, len(again.seconds)) == (0, 2)
