"""What triggers a compile: exact counts, and the argument that each report names."""

from __future__ import annotations

import contextlib

import pytest
from jit_kernels import blocks, even, fresh, leftover, pair, scale, wide

from aotkern.audit.counting import count_jit
from aotkern.errors import UnexpectedCompileError
from aotkern.triton_bridge.paper import PaperTensor

X = PaperTensor("float32")


def messages(jit) -> str:
    return "\n".join(cause.message for row in jit.report.rows for cause in row.causes)


def keys(jit) -> list[str]:
    return [",".join(f"{name}{spec}" for name, spec in compile_.arguments) for compile_ in jit.compiles]


def test_an_integer_that_crosses_its_classes_compiles_once_for_each(device):
    device("gfx942")
    kernel = fresh(scale)
    with count_jit() as jit:
        kernel[(1,)](X, 16)
        jit.ready()
        for n in (1, 2, 3, 16, 17, 32, 48):
            kernel[(1,)](X, n)
    assert jit.report.count("startup") == 1
    assert jit.report.count("serving") == 2
    assert [compile_.values["n"] for compile_ in jit.compiles] == ["16", "1", "2"]
    assert "n: multiple of 16 -> 1" in messages(jit)
    assert "-> other (n=2)" in messages(jit)


def test_forty_values_of_a_constexpr_are_one_finding_that_comes_first(device):
    device("gfx942")
    kernel, other = fresh(blocks), fresh(scale)
    with count_jit(at_most=0) as jit:
        other[(1,)](X, 3)
        for value in range(40):
            kernel[(1,)](X, B=value)
    report = jit.report
    assert report.count(kernel="blocks") == 40
    row = report.rows[0]
    assert row.kernel == "blocks"
    assert len(row.causes) == 1
    assert row.causes[0].message.startswith("B: constexpr took 40 values (0, 1, 2, 3, ... 39)")
    assert "run-time argument" in row.causes[0].advice
    assert [finding.subject for finding in report.findings] == ["blocks", "scale"]


@pytest.mark.parametrize(("mode", "served"), [("observe", 2), ("warn", 2), ("error", 1)])
def test_a_compile_after_ready_is_served_said_or_refused(device, capsys, mode, served):
    device("gfx942")
    kernel = fresh(scale)
    launches = 0
    known = {"scale": ("scale[hip:gfx942](x:*fp32:DS,n:i32:D)",)}
    with count_jit(at_most=1, mode=mode, known=known) as jit:
        kernel[(1,)](X, 16)
        launches += 1
        jit.ready()
        kernel[(1,)](X, 32)
        jit.phase("startup")
        if mode == "error":
            with pytest.raises(UnexpectedCompileError) as caught:
                kernel[(1,)](X, 17)
            assert caught.value.key.startswith("scale[hip:gfx942](x:*fp32:DS,n:i32)")
            assert "nearest prebuilt: scale[hip:gfx942](x:*fp32:DS,n:i32:D)" in caught.value.nearest
            assert "n: multiple of 16 -> other" in str(caught.value)
        else:
            kernel[(1,)](X, 17)
            launches += 1
    assert launches == served
    assert [str(compile_.outcome) for compile_ in jit.compiles][-1] == ("refused" if mode == "error" else "compiled")
    assert jit.report.verdict.exit_code == 1
    assert ("allows 1" in capsys.readouterr().err) == (mode == "warn")


def test_a_view_with_an_offset_is_explained_by_its_alignment(device):
    device("gfx942")
    kernel = fresh(scale)
    with count_jit() as jit:
        for address in (4096, 4100, 4104):
            kernel[(1,)](PaperTensor("float32", address), 16)
    assert keys(jit) == ["x:*fp32:DS,n:i32:D", "x:*fp32:S,n:i32:D"]
    assert "x: 16-byte aligned -> not 16-byte aligned (address % 16 = 4)" in messages(jit)
    assert 'alignment="both"' in jit.report.rows[0].declaration


def test_arguments_that_are_never_read_are_named(device):
    device("gfx942")
    kernel = fresh(leftover)
    with count_jit() as jit:
        for k in (1, 16, 17):
            for NB in (8, 9):
                kernel[(1,)](X, k, NB)
    row = jit.report.rows[0]
    assert (row.count, row.variants, row.binaries) == (6, 6, 2)
    unread = {cause.name: cause for cause in row.causes if cause.kind == "unread"}
    assert set(unread) == {"NB", "k"}
    assert "never read" in unread["NB"].message


def test_do_not_specialize_on_a_constexpr_is_said_to_do_nothing(device):
    # Triton 3.9 refuses the combination when it compiles; before, it was without effect.
    from triton.compiler.errors import CompilationError

    device("gfx942")
    kernel = fresh(blocks, do_not_specialize=["B"])
    with count_jit() as jit:
        for value in (1, 2):
            with contextlib.suppress(CompilationError):
                kernel[(1,)](X, B=value)
    assert jit.count == 2
    assert "B: 1 -> 2 (do_not_specialize does nothing for a constexpr)" in messages(jit)


@pytest.mark.parametrize(("target", "count"), [("gfx942", 2), ("cuda:90", 1)])
def test_storage_over_2_gib_is_another_binary_on_amd_only(device, target, count):
    device(target)
    kernel = fresh(scale)
    with count_jit() as jit:
        kernel.warmup(PaperTensor("float32", storage=2**31 - 1), 16, grid=(1,))
        kernel.warmup(PaperTensor("float32", storage=2**31), 16, grid=(1,))
    assert jit.count == count
    said = "x: storage of at most 2 GiB - 1 -> storage over 2 GiB (2147483648 bytes)" in messages(jit)
    assert said == (target == "gfx942")
    assert ('storage="both"' in jit.report.rows[0].declaration) == (target == "gfx942")


def test_the_type_of_an_integer_follows_its_value(device):
    device("gfx942")
    kernel = fresh(scale)
    with count_jit() as jit:
        for n in (5, 2**31 - 1, 2**31 + 1, 2**63 + 1):
            kernel.warmup(X, n, grid=(1,))
    assert [key.rpartition(":")[2] for key in keys(jit)] == ["i32", "i64", "u64"]
    assert f"n: i32 -> i64 (n={2**31 + 1})" in messages(jit)


def test_tuples_stay_tuples_and_remind_of_what_they_ignore(device):
    device("gfx942")
    kernel = fresh(pair, do_not_specialize=["shape"])
    with count_jit() as jit:
        kernel.warmup(X, (1, 16, 3), grid=(1,))
        kernel.warmup(X, (1, 17, 3), grid=(1,))
        kernel.warmup(X, (1, 16, 3), grid=(1,))
    assert keys(jit) == ["x:*fp32:DS,shape(=1,:i32:D,:i32)", "x:*fp32:DS,shape(=1,:i32,:i32)"]
    assert "shape[1]: multiple of 16 -> other (shape[1]=17) (do_not_specialize is not applied" in messages(jit)


def test_an_annotated_integer_has_tritons_own_key(device):
    device("gfx942")
    kernel = fresh(wide)
    with count_jit() as jit:
        for n in (1, 2, 16):
            kernel.warmup(X, n, grid=(1,))
    table = next(iter(kernel.device_caches.values()))[0]
    assert jit.count == len(table)
    assert {key.partition("n:")[2].rstrip(")") for key in keys(jit)} <= {"i64", "i64:D"}


def test_a_value_of_a_heuristic_is_called_one(device):
    import triton

    device("gfx942")
    kernel = triton.heuristics({"EVEN_K": lambda args: args["n"] % 32 == 0})(fresh(even))
    with count_jit() as jit:
        kernel[(1,)](X, 32)
        kernel[(1,)](X, 48)
    assert "EVEN_K: True -> False (heuristic)" in messages(jit)


def test_another_option_is_named(device):
    device("gfx942")
    kernel = fresh(scale)
    with count_jit() as jit:
        kernel[(1,)](X, 16, num_warps=4)
        kernel[(1,)](X, 16, num_warps=8)
    assert "num_warps: 4 -> 8" in messages(jit)
