"""Waits and barriers: with `latest` and `detect_races`, taking out any one that matters is noticed."""

from __future__ import annotations

import pickle
from collections import Counter
from functools import cache

import numpy as np
import pytest
import recount
import waits
from bench import Bench, assembled
from synchronised import Subject, subjects

from aotkern.emulator.control import Code
from aotkern.emulator.errors import MissingWaitError, RaceError
from aotkern.emulator.latest import Late
from aotkern.emulator.operands import Operands
from aotkern.emulator.outstanding import Queue
from aotkern.emulator.program import Program
from aotkern.emulator.scheduler import Plan, Scheduler
from aotkern.target import Target

ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
CHECKED = {"detect_races": True, "latest": True}


@cache
def few(arch: str) -> list[Subject]:
    return subjects(arch, quick=True)


@ARCHS
@pytest.mark.parametrize("order", ["lockstep", "forward", "reverse", "random"])
def test_right_code_is_right_when_everything_is_late(arch: str, order: str) -> None:
    for subject in few(arch):
        subject.run()
        right = subject.results()
        subject.run(wave_order=order, **CHECKED)
        assert subject.results() == right, subject.name


def noticed(subject: Subject, code: bytes, right: bytes) -> str:
    try:
        subject.run(code, limit=2_000_000, **CHECKED)
    except (MissingWaitError, RaceError) as error:
        return type(error).__name__
    return "not noticed" if subject.results() == right else "wrong"


def removed(arch: str, name: str, subject: Subject) -> list[tuple[bytes, str, str]]:
    """Code without each executed instruction of a name, the instruction, and what came of it."""
    executed = set(subject.run().addresses)
    right = subject.results()
    made = []
    for place, found in waits.instructions(subject.code):
        if found.name == name and found.pc in executed:
            code = waits.without(subject.code, place)
            made.append((code, f"{subject.name} {found.pc:#x} {found.text}", noticed(subject, code, right)))
    return made


@ARCHS
def test_every_wait_that_is_taken_out_is_noticed(arch: str) -> None:
    results = [one for subject in few(arch)[1:4:2] for one in removed(arch, "s_waitcnt", subject)]
    assert not [text for _, text, result in results if result == "not noticed"]
    kinds = Counter(result for _, _, result in results)
    assert kinds["MissingWaitError"] >= 4
    assert kinds["RaceError"] >= 2  # those that stand before a barrier


@ARCHS
def test_every_barrier_that_is_taken_out_is_noticed_or_harmless(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    for subject in few(arch)[1:4:2]:
        assert recount.conflicts(subject, subject.code, monkeypatch) == 0, subject.name
        for code, text, result in removed(arch, "s_barrier", subject):
            conflicts = recount.conflicts(subject, code, monkeypatch)
            assert result != "not noticed" or conflicts == 0, text
            count += result == "RaceError"
    assert count >= 3


@ARCHS
def test_the_first_wait_of_a_kernel_is_named_with_its_load(arch: str) -> None:
    subject = few(arch)[0]
    place = waits.places(subject.code, "s_waitcnt")[-1]
    with pytest.raises(MissingWaitError) as caught:
        subject.run(waits.without(subject.code, place), **CHECKED)
    error = caught.value
    assert error.counter in ("vmcnt", "lgkmcnt", "lgkmcnt, any order")
    assert error.register[0] in "vas"
    assert error.pc is not None
    assert error.load < error.pc
    assert error.load_text in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def late(bench: Bench, text: str) -> None:
    """Run assembled code on one wave with everything late."""
    operands = Operands(256, 256, arch=bench.arch)
    code = assembled(text, bench.arch)
    target = Target.parse(bench.arch)
    program = Program(code, 0, len(code), target, operands, Code(0), Late(operands, watched=False))
    bench.waves.queue = Queue()
    with np.errstate(all="ignore"):
        Scheduler(program, Plan("lockstep", 0, 10_000, None, 1, 1, 1), iter([bench.waves])).run()


LDS = "v_mov_b32_e32 v0, 0\nv_mov_b32_e32 v1, 7\nds_write_b32 v0, v1\n"
LOADS = "global_load_dword v2, v[4:5], off\nglobal_load_dword v3, v[4:5], off offset:4\n"
SCALARS = "s_load_dword s4, s[0:1], 0x0\ns_load_dword s5, s[0:1], 0x4\n"


@pytest.mark.parametrize(
    ("text", "register"),
    [
        (f"{LDS}ds_read_b32 v2, v0\nv_mov_b32_e32 v3, v2", "v2"),
        (f"{LDS}ds_read_b32 v2, v0\ns_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v3, v2", "v2"),
        (f"{LDS}ds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v3, v2", None),
        (f"{LDS}ds_read_b32 v2, v0\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, v2", "v2"),
        (f"{LDS}ds_read_b32 v2, v0\nv_mov_b32_e32 v2, 0", "v2"),
        (f"{LDS}ds_read_b32 v2, v0\nds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v3, v2", None),
        (f"{LDS}ds_read_b32 v2, v0\nds_read_b32 v3, v0\ns_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v6, v2", None),
        (f"{LDS}ds_read_b32 v2, v0\nds_read_b32 v3, v0\ns_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v6, v3", "v3"),
        (f"{LOADS}s_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v2", None),
        (f"{LOADS}s_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v3", "v3"),
        (f"{LOADS}v_mov_b32_e32 v6, v3", "v3"),
        (f"{SCALARS}s_waitcnt lgkmcnt(1)\ns_mov_b32 s6, s4", "s4"),  # scalar loads come in any order
        (f"{SCALARS}s_waitcnt lgkmcnt(0)\ns_mov_b32 s6, s4", None),
        ("global_load_dword v2, v[4:5], off\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(1)\n"
         "v_mov_b32_e32 v6, v2", "v2"),
        ("flat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v6, v3", "v3"),
        ("flat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v6, v3", None),
        ("ds_bpermute_b32 v2, v0, v1\nv_mov_b32_e32 v3, v2", "v2"),
        ("s_load_dwordx2 vcc, s[0:1], 0x0\ns_cbranch_vccz end\nend:", "vcc_lo"),
    ],
)  # fmt: skip
def test_registers_are_there_when_waits_guarantee_it(text: str, register: str | None) -> None:
    from bench import GLOBAL

    bench = Bench()
    bench.set_wide(4, np.full(64, GLOBAL, np.uint64))
    bench.scalar(0, GLOBAL, bits=64)
    bench.set(0, np.zeros(64, np.uint32))
    if register is None:
        late(bench, f"{text}\ns_endpgm")
        return
    with pytest.raises(MissingWaitError) as caught:
        late(bench, f"{text}\ns_endpgm")
    assert caught.value.register == register


def test_a_full_counter_holds_up_the_next_load() -> None:
    """The 64th outstanding load needs the first one to be done."""
    from bench import GLOBAL

    for count, fails in ((63, True), (64, False)):
        bench = Bench()
        bench.set_wide(4, np.full(64, GLOBAL, np.uint64))
        loads = "".join(f"global_load_dword v{10 + index}, v[4:5], off\n" for index in range(count))
        text = f"{loads}v_mov_b32_e32 v6, v10\ns_endpgm"
        if fails:
            with pytest.raises(MissingWaitError):
                late(bench, text)
        else:
            late(bench, text)


def test_lds_is_written_late_and_read_in_order() -> None:
    """A wave's own read comes after its write; what stands in LDS meanwhile is the old value."""
    bench = Bench()
    late(bench, f"{LDS}ds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v3, v2\ns_endpgm")
    assert bench.v[3, 0].tolist() == [7] * 64


@pytest.mark.parametrize(("wait", "seen"), [("s_waitcnt vmcnt(0)", 5), ("s_nop 0", None)])
def test_a_load_into_lds_is_there_after_its_wait(wait: str, seen: int | None) -> None:
    from bench import GLOBAL

    bench = Bench("gfx950")
    bench.memory[:] = np.tile(np.array([5, 0, 0, 0], np.uint8), 1024)
    bench.set_wide(4, np.full(64, GLOBAL, np.uint64))
    text = f"""
    s_mov_b32 m0, 0
    v_mov_b32_e32 v0, 0
    global_load_lds_dword v[4:5], off
    {wait}
    ds_read_b32 v2, v0
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v3, v2
    s_endpgm
    """
    late(bench, text)
    assert (set(bench.v[3, 0].tolist()) == {5}) == (seen == 5)


def test_inputs_are_those_of_the_issue() -> None:
    """Registers and lanes may change before the wait."""
    bench = Bench()
    text = f"""
    {LDS}
    v_mov_b32_e32 v1, 9
    v_mov_b32_e32 v0, 4
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    s_mov_b64 exec, -1
    v_mov_b32_e32 v0, 0
    ds_read_b32 v2, v0
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v3, v2
    s_endpgm
    """
    late(bench, text)
    assert set(bench.v[3, 0].tolist()) == {7}
    assert set(bench.v[1, 0].tolist()) == {9}


def test_the_kernels_of_these_tests_load_into_lds() -> None:
    texts = [one.text for subject in few("gfx950") for _, one in waits.instructions(subject.code)]
    assert any("lds" in text for text in texts)
