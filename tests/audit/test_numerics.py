"""The numerics audit: what is run, how an output is judged, and that wrong machine code is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from bundles import Spec, make

from aotkern.audit.cases import Case, Exact, Near, Typed, constants, load
from aotkern.audit.execution import aligned
from aotkern.audit.executors import Emulated
from aotkern.audit.findings import Verdict
from aotkern.audit.judging import judge as judged
from aotkern.audit.numerics import NOT_SAID, Counts, NumericsReport, Outcome, audit, choose
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.manifest import Launch, Manifest, VariantEntry
from aotkern.report import numerics as reported
from aotkern.spec import VariantKey

CASES = '''
"""Cases of `scale`, drawn from the seed."""

import numpy as np

from aotkern.audit.cases import Case, Exact, Near


def scale(key, seed):
    x = np.random.default_rng(seed).standard_normal(300).astype(np.float32)
    out = np.full(304, 7, np.float32)
    wanted = out.copy()
    wanted[:300] = x * np.float32(0.5)
    arguments = {"x": x, "out": out, "n": 300, "factor": 0.5}
    yield Case("exact", (3,), arguments, {"out": Exact(wanted)})
    near = np.where(np.arange(304) < 300, wanted.astype(np.float64), np.nan)
    yield Case("near", (3,), arguments, {"out": Near(near, elsewhere=out)})


CASES = {"scale": scale, "scale_short": scale}
'''
SPECS = (
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128"),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "scale_cases.py"
    path.write_text(CASES)
    return path


@pytest.fixture
def bundle(compile_kernel, tmp_path: Path) -> Path:
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(make(compile_kernel, "gfx942", SPECS))
    return path


@pytest.fixture
def wrong(compile_kernel, tmp_path: Path) -> Path:
    path = tmp_path / "short.gfx942.aotk"
    path.write_bytes(make(compile_kernel, "gfx942", SPECS[:1], "scale_short"))
    return path


def judge(found, expected) -> tuple[tuple[float, float], str]:
    """The errors, and what is wrong, of a comparison that shows something."""
    answer = judged(found, expected)
    assert not answer.doubt
    assert answer.compared
    return answer.worst, answer.wrong


def manifest(path: Path) -> Manifest:
    return Bundle.open(path).manifest


def audited(path: Path, source: Path, **how: int) -> NumericsReport:
    return audit(Bundle.open(path).manifest, load(str(source)), Emulated(path, "gfx942"), **how)


def test_right_code_is_clean(bundle: Path, source: Path) -> None:
    report = audited(bundle, source)
    assert report.verdict is Verdict.CLEAN
    assert (report.on, report.variants, report.left_out, report.without_cases) == ("emulator", 2, {}, ())
    assert report.objects == {"scale": Counts(2, 2)}
    assert [outcome.case for outcome in report.outcomes] == ["exact", "near"] * 2


def test_a_wrong_kernel_is_found_by_each_of_its_cases(wrong: Path, source: Path) -> None:
    report = audited(wrong, source, seed=5)
    assert report.verdict is Verdict.FINDINGS
    exact, near = report.findings
    assert (exact.state, exact.facts) == ("wrong", {"case": "exact", "seed": 5})
    assert exact.message.startswith("exact, seed 5: out: 4 bytes differ, first at [299]: expected ")
    assert near.message.startswith("near, seed 5: out: 1 of 300 elements off")


def test_code_that_leaves_its_memory_is_a_finding_and_not_a_crash(bundle: Path, source: Path) -> None:
    source.write_text(CASES.replace('"n": 300', '"n": 330'))
    report = audited(bundle, source)
    assert report.verdict is Verdict.FINDINGS
    assert all("EmulatorError" in outcome.error for outcome in report.outcomes)


def test_a_seed_repeats_its_inputs_and_another_one_draws_others(wrong: Path, source: Path) -> None:
    first, again, other = (audited(wrong, source, seed=seed).findings[0].message for seed in (3, 3, 4))
    assert first == again
    assert first.partition("expected")[2] != other.partition("expected")[2]


def test_a_kernel_without_cases_leaves_the_question_open(bundle: Path) -> None:
    report = audit(Bundle.open(bundle).manifest, {"other": lambda key, seed: iter(())}, Emulated(bundle, "gfx942"))
    assert (report.verdict, report.without_cases, report.outcomes) == (Verdict.UNKNOWN, ("scale",), ())


def test_cases_that_run_nothing_leave_the_question_open(bundle: Path) -> None:
    report = audit(Bundle.open(bundle).manifest, {"scale": lambda key, seed: iter(())}, Emulated(bundle, "gfx942"))
    assert report.verdict is Verdict.UNKNOWN


def test_inputs_of_a_case_survive_the_launch(bundle: Path) -> None:
    held: list[Case] = []

    def cases(key: VariantKey, seed: int) -> Iterator[Case]:
        x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
        held.append(Case("one", (1,), {"x": x, "out": out, "n": 8, "factor": 2.0}, {"out": Exact(x * 2)}))
        yield held[-1]

    assert audit(Bundle.open(bundle).manifest, {"scale": cases}, Emulated(bundle, "gfx942")).verdict is Verdict.CLEAN
    assert all(not case.arguments["out"].any() for case in held)


def entry(text: str) -> VariantEntry:
    return VariantEntry(text, Digest.of(text.encode()), Digest.of(b"code"), Launch(0, 4), "")


def test_the_choice_takes_first_what_brings_something_new() -> None:
    texts = [f"k[hip:gfx942](x:*fp32:{kind},A={a},B={b})" for kind in ("D", "DS") for a in (1, 2, 3) for b in (5, 6)]
    entries = [entry(text) for text in texts]
    for seed in range(20):
        three = choose(entries, 3, seed)
        assert {constants(variant.key)["A"] for variant in choose(entries, 12, seed)[:5]} == {1, 2, 3}
        assert len({variant.text for variant in three}) == 3
        assert choose(list(reversed(entries)), 12, seed)[:3] == three
        assert set(choose(entries, 99, seed)) == set(entries)
    assert len({choose(entries, 12, seed) for seed in range(20)}) > 1


def test_variants_that_share_their_code_run_once(compile_kernel, tmp_path: Path, source: Path) -> None:
    path = tmp_path / "twice.aotk"
    twin = Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128", {"num_warps": 4, "num_stages": 1})
    path.write_bytes(make(compile_kernel, "gfx942", (SPECS[0], twin)))
    assert audited(path, source).variants == 1


def test_what_is_left_out_is_counted(bundle: Path, source: Path) -> None:
    report = audited(bundle, source, most=1)
    (left_out,) = report.left_out["scale"]
    assert (report.variants, report.objects) == (1, {"scale": Counts(1, 2)})
    assert {left_out} | {outcome.key for outcome in report.outcomes} == {v.text for v in manifest(bundle).variants}
    assert report.summary.startswith("hip:gfx942 on emulator: 1 of 2 code objects, 2 cases, wrong 0, could not tell 0")
    assert f"left out: {left_out}" in reported.text(report)


def test_exact_outputs_compare_bits() -> None:
    wanted = np.array([[1.0, 2.0], [0.0, np.nan]], np.float32)
    assert judge(wanted.copy(), Exact(wanted)) == ((0.0, 0.0), "")
    found = wanted.copy()
    found[1, 0] = -0.0
    assert "1 bytes differ, first at [1, 0]" in judge(found, Exact(wanted))[1]


@pytest.mark.parametrize(
    ("found", "limits", "message"),
    [
        ([1.0, 1.01], {}, ""),
        ([1.0, 1.05], {}, "1 of 2 elements off, by up to 0.05"),
        ([1.0, np.nan], {}, "1 of 2 elements off"),
        ([1.0, np.inf], {}, "1 of 2 elements off"),
        ([1.0, 1.05], {"atol": 1.0}, "relative L2 error 0.0354 > 0.01"),
    ],
)
def test_near_outputs_are_held_to_every_limit(found: list[float], limits: dict[str, float], message: str) -> None:
    _, wrong = judge(np.array(found, np.float32), Near(np.ones(2), **limits))
    assert wrong.startswith(message)
    assert bool(wrong) == bool(message)


def test_a_reference_of_zeros_admits_no_relative_error() -> None:
    assert "L2" in judge(np.full(3, 0.01), Near(np.zeros(3)))[1]


def test_elements_without_a_reference_may_hold_anything_unless_they_must_survive() -> None:
    reference, free = np.array([1.0, np.nan]), np.array([False, True])
    found, before = np.array([1.0, 5.0], np.float32), np.array([9.0, 7.0], np.float32)
    assert judge(found, Near(reference, undefined=free))[1] == ""
    assert (
        "where nothing is computed, 1 bytes differ, first at [1]" in judge(found, Near(reference, elsewhere=before))[1]
    )
    found[1] = 7
    assert judge(found, Near(reference, elsewhere=before))[1] == ""


def test_bf16_outputs_are_decoded() -> None:
    ones = Typed(np.full(2, 0x3F80, np.uint16), "bf16")
    assert judge(ones, Near(np.ones(2))) == ((0.0, 0.0), "")


def test_copies_are_aligned_for_every_class_of_pointers() -> None:
    data = np.arange(7, dtype=np.uint8)
    for _ in range(20):
        copy = aligned(data)
        assert copy.ctypes.data % 16 == 0
        assert (copy == data).all()


@pytest.mark.parametrize("text", ["", "CASES = {}", "CASES = 3", "import missing_module", "def"])
def test_files_without_cases_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "none.py"
    path.write_text(text)
    with pytest.raises(InputError, match="CASES"):
        load(str(path))


def test_the_command_prints_and_answers(aotkern, bundle: Path, wrong: Path, source: Path) -> None:
    answer = aotkern("audit", "numerics", bundle, "--cases", source)
    assert answer.code == 0
    assert "hip:gfx942, executed by: emulator" in answer.out
    assert NOT_SAID in answer.out
    answer = aotkern("audit", "numerics", wrong, "--cases", source, "--seed", "9")
    assert answer.code == 1
    assert "exact, seed 9: out: 4 bytes differ" in answer.out


def test_the_document_fits_its_schema(bundle: Path, wrong: Path, source: Path) -> None:
    schemas = Path(reported.__file__).parents[1] / "schemas"
    schema = json.loads((schemas / "numerics.schema.json").read_text())
    for path in (bundle, wrong):
        jsonschema.validate(json.loads(json.dumps(reported.machine(audited(path, source)))), schema)


def test_outcomes_name_the_worst_error() -> None:
    outcome = Outcome("k[hip:gfx942]()", "c", 0, "", {"out": (0.5, 0.25)})
    report = NumericsReport(entry("k[hip:gfx942]()").key.target, "emulator", (outcome,), {"k": Counts(1, 1)})
    (row,) = reported.machine(report)["cases"]
    assert row["worst"] == {"out": {"absolute": 0.5, "l2": 0.25}}


def test_each_element_may_have_its_own_absolute_tolerance():
    wanted = np.array([[1.0, 1.0], [1.0, 1.0]])
    limits = Near(wanted, np.array([[0.5], [0.0]]), rtol=0.0, l2=1.0)
    assert judge(np.array([[1.4, 0.6], [1.0, 1.0]]), limits)[1] == ""
    assert judge(np.array([[1.0, 1.0], [1.4, 1.0]]), limits)[1].startswith("1 of 4 elements off")
