"""What is built of a trace: trials, functions, other targets, wider variants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotkern.build import traceplan
from aotkern.canonical import loads
from aotkern.digest import Digest
from aotkern.spec import VariantKey
from aotkern.target import Target
from aotkern.trace import Chosen, Recorded, Trace, Unbuildable

GFX942, GFX950, SM90, SM80 = map(Target.parse, ("gfx942", "gfx950", "cuda:90", "cuda:80"))
SOURCE = Digest.of(b"source")


def row(key: str, **more) -> Recorded:
    return Recorded(VariantKey.parse(f"m.{key}"), "m", SOURCE, constexprs=("B",), triton="3.9.0", **more)


def keys(trace: Trace, *targets: Target, widen: bool = False, **more) -> list[str]:
    plan = traceplan.planned(trace, targets, widen=widen, **more)
    return [str(item.key).removeprefix("m.") for item in plan.recorded]


def test_what_was_recorded_on_a_target_is_built_for_it_alone():
    trace = Trace.of([row("k[hip:gfx942](x:*fp32:DS)"), row("k[cuda:90](x:*fp32:D)")])
    assert keys(trace, GFX942) == ["k[hip:gfx942](x:*fp32:DS)"]
    assert keys(trace, GFX950) == ["k[hip:gfx950](x:*fp32:DS)"]
    assert keys(trace, SM80) == ["k[cuda:80](x:*fp32:D)"]


def test_classes_and_hints_of_the_other_back_end_are_dropped():
    trace = Trace.of([row("k[hip:gfx942](x:*fp32:DS,n:i32:D){kpack=2,num_warps=8,waves_per_eu=1}")])
    assert keys(trace, SM90) == ["k[cuda:90](x:*fp32:D,n:i32:D){num_warps=8}"]
    other = Trace.of([row("k[cuda:90](x:*fp32:D,n:i32){launch_pdl=True,maxnreg=64,num_warps=8}")])
    assert keys(other, GFX942) == [
        "k[hip:gfx942](x:*fp32:D,n:i32){launch_pdl=True,num_warps=8}",
        "k[hip:gfx942](x:*fp32:DS,n:i32){launch_pdl=True,num_warps=8}",
    ]


def test_more_warps_than_a_workgroup_can_have_become_the_most_it_can_have():
    trace = Trace.of([row("k[cuda:90](n:i32){num_warps=32}")])
    assert keys(trace, GFX942) == ["k[hip:gfx942](n:i32){num_warps=16}"]
    assert keys(trace, SM80) == ["k[cuda:80](n:i32){num_warps=32}"]


def test_a_pointer_on_the_other_back_end_gets_both_storage_classes():
    trace = Trace.of([row("k[cuda:90](x:*fp32,n:i32)")])
    assert keys(trace, GFX942) == ["k[hip:gfx942](x:*fp32,n:i32)", "k[hip:gfx942](x:*fp32:S,n:i32)"]
    assert keys(Trace.of([row("k[cuda:90](n:i32)")]), GFX942) == ["k[hip:gfx942](n:i32)"]


def test_widening_leaves_constexprs_and_what_is_inside_tuples():
    trace = Trace.of([row("k[hip:gfx942](x:*fp32:DS,n=1,t(=1,:i32:D),B=1)")])
    assert keys(trace, GFX942, widen=True) == [
        "k[hip:gfx942](x:*fp32,n:i32,t(=1,:i32),B=1)",
        "k[hip:gfx942](x:*fp32:D,n:i32,t(=1,:i32),B=1)",
        "k[hip:gfx942](x:*fp32:DS,n:i32,t(=1,:i32),B=1)",
        "k[hip:gfx942](x:*fp32:DS,n=1,t(=1,:i32:D),B=1)",
    ]


def test_a_setting_of_one_back_end_is_not_asked_of_the_other():
    trace = Trace.of([row('k[hip:gfx942](x:*fp32){AMDGCN_USE_BUFFER_OPS=False,TRITON_F32_DEFAULT="ieee"}')])
    assert keys(trace, SM90) == ['k[cuda:90](x:*fp32){TRITON_F32_DEFAULT="ieee"}']
    assert keys(trace, GFX942) == ['k[hip:gfx942](x:*fp32){AMDGCN_USE_BUFFER_OPS=False,TRITON_F32_DEFAULT="ieee"}']


def test_only_chosen_trials_are_built():
    trials = [row(f"k[cuda:90](x:*fp32,B={b}){{num_warps={w}}}", trial=True) for b, w in ((32, 2), (64, 2), (64, 8))]
    choice = Chosen("m.k", SOURCE, "cuda:90", ("1024",), (("B", "64"), ("num_stages", "3"), ("num_warps", "8")))
    assert keys(Trace.of([*trials, choice]), SM90) == ["k[cuda:90](x:*fp32,B=64){num_warps=8}"]
    assert keys(Trace.of(trials), SM90) == []
    assert keys(Trace.of([*trials, replace(choice, source=Digest.of(b"other"))]), SM90) == []


def test_excluded_kernels_are_left_out():
    trace = Trace.of(
        [row("k[cuda:90](x:*fp32)"), row("other[cuda:90](x:*fp32)"), Unbuildable("m.other", "cuda:90", "x")]
    )
    kept = traceplan.without_excluded(trace, ["m.oth*"])
    assert keys(kept, SM90) == ["k[cuda:90](x:*fp32)"]
    assert kept.unbuildable == ()


def test_benchmarks_without_a_choice_are_named():
    trace = Trace.of([row(f"k[cuda:90](x:*fp32,B={b})", trial=True) for b in (32, 64)])
    (left,) = traceplan.untuned(trace)
    assert (left.kernel, left.target, left.kind) == ("m.k", "cuda:90", "untuned")
    assert left.reason == "2 candidates were benchmarked, and none was chosen"
    choice = Chosen("m.k", SOURCE, "cuda:90", ("1024",), (("B", "64"),))
    assert list(traceplan.untuned(Trace.of([*trace.recorded, choice]))) == []


def test_a_choice_that_was_made_on_paper_is_no_choice():
    trial = row("k[cuda:90](x:*fp32,B=32)", trial=True)
    choice = Chosen("m.k", SOURCE, "cuda:90", ("1024",), (("B", "32"),), "a", paper=True)
    assert keys(traceplan.without_paper(Trace.of([trial, choice])), SM90) == []
    measured = replace(choice, config=(("B", "64"),), paper=False)
    for rows in ([choice, measured], [measured, choice]):
        assert Trace.of(rows).chosen == (measured,)


def test_choices_of_two_autotuners_of_one_kernel_stay_apart():
    one = Chosen("m.k", SOURCE, "cuda:90", ("1024",), (("B", "32"),), "one")
    two = replace(one, config=(("B", "64"),), tuner="two")
    assert Trace.of([one, two]).chosen == (one, two)
    assert traceplan.chosen_for([one, two], SM90) == [one, two]


def test_each_kernel_is_built_under_a_device_that_it_was_recorded_on():
    trace = Trace.of([row("k[hip:gfx942](n:i32)"), row("k[cuda:90](n:i32)"), row("only[cuda:90](n:i32)")])
    found = traceplan.passes(trace, (GFX942, GFX950, SM80), widen=False)
    assert [(str(one.device), [str(item.key) for item in one.trace.recorded]) for one in found] == [
        (
            "cuda:90",
            [
                "m.k[cuda:80](n:i32)",
                "m.only[cuda:80](n:i32)",
                "m.only[hip:gfx942](n:i32)",
                "m.only[hip:gfx950](n:i32)",
            ],
        ),
        ("hip:gfx942", ["m.k[hip:gfx942](n:i32)", "m.k[hip:gfx950](n:i32)"]),
    ]
    assert traceplan.recorded_targets(trace) == (SM90, GFX942)


def test_what_is_carried_over_or_borrowed_is_noted():
    choices = [
        Chosen("m.k", SOURCE, "cuda:90", ("1",), (("B", "64"),)),
        Chosen("m.k", SOURCE, "cuda:90", ("2",), (("B", "64"),), paper=True),
    ]
    trace = Trace.of([row("k[cuda:90](n:i32)"), *choices])
    assert list(traceplan.carried(trace, (GFX942,))) == [
        "hip:gfx942: 1 kernels are built from what was recorded on cuda:90; the program may ask for other variants on "
        "hip:gfx942: record it there too, which a device on paper can do",
        "hip:gfx942: 2 choices of autotuners are borrowed from cuda:90",
        "hip:gfx942: 1 choices of autotuners were made on paper, where times are made up",
    ]
    assert list(traceplan.carried(trace, (SM90,))) == [
        "cuda:90: 1 choices of autotuners were made on paper, where times are made up"
    ]


def test_a_choice_that_was_measured_on_the_target_counts_before_others():
    here = Chosen("m.k", SOURCE, "cuda:90", ("1",), (("B", "64"),))
    there = replace(here, target="hip:gfx942", config=(("B", "32"),))
    elsewhere = replace(there, key=("2",))
    text = traceplan.tuning([there, elsewhere, here], SM90)
    assert [(item["key"], item["config"]) for item in loads(text.encode(), "tuning")] == [
        (["1"], {"B": "64"}),
        (["2"], {"B": "32"}),
    ]
    assert traceplan.tuning([], SM90) == ""


@pytest.mark.parametrize("count", [traceplan.MANY - 1, traceplan.MANY])
def test_a_constant_with_many_values_is_noted(count):
    trace = Trace.of([row(f"k[cuda:90](x:*fp32,B={b})") for b in range(count)])
    expected = ["kernel m.k: argument B took 16 values: could it be a run-time argument?"]
    assert list(traceplan.notes(trace)) == (expected if count == traceplan.MANY else [])
