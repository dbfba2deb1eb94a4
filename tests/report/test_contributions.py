"""What audits contribute to a page: merged variants, grouped differences, instructions."""

from __future__ import annotations

import reports_made as made
from reports_made import GFX942, GFX950, key

from aotkern.audit.findings import Verdict
from aotkern.audit.identity import Comparison, State
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.resources import ResourceReport
from aotkern.report import contributions
from aotkern.report.page import Delta, Difference, Line, Table, Tone


def page(*reports):
    return contributions.page(GateReport("policy", tuple(StepResult.of("a", "b", report, 0.0) for report in reports)))


def test_a_variant_that_two_audits_read_is_one_row_with_the_worst_state_first():
    name = key("scale", GFX942)
    compared = made.identity(Comparison(name, State.DIFFERENT, True, {}))
    held = ResourceReport(GFX942, {name: made.USAGE}, (), {}, 1)
    (row,) = page(held, compared).variants
    assert [state.text for state in row.states] == ["different, source changed", "within bounds"]
    assert (row.tone, row.numbers["vgprs"]) == (Tone.BAD, 24)
    assert (row.kernel, row.target) == ("scale", "hip:gfx942")
    assert row.specialisation == "(x:*fp32:D,out:*fp32:D,n:i32:D,BLOCK=64){num_warps=4}"


def test_the_matrix_counts_the_variants_of_each_kernel_and_target():
    matrix = contributions.page(made.full()).matrix
    assert matrix.rows == ("gone", "mix", "scale", "wide")
    assert matrix.columns == ("hip:gfx942", "hip:gfx950")
    cells = {place: (cell.text, cell.tone) for place, cell in matrix.cells.items()}
    assert cells == {
        ("gone", "hip:gfx942"): ("1 with findings", Tone.BAD),
        ("mix", "hip:gfx942"): ("2 with findings", Tone.BAD),
        ("scale", "hip:gfx942"): ("2 good", Tone.GOOD),
        ("scale", "hip:gfx950"): ("1 changed, 2 good", Tone.NOTICE),
        ("wide", "hip:gfx950"): ("1 with findings", Tone.BAD),
    }


def test_variants_that_differ_alike_are_shown_once():
    section = contributions.page(made.full()).sections[1]
    missing, different = sorted((b for b in section.blocks if isinstance(b, Difference)), key=lambda b: b.keys)
    assert missing.keys == (key("gone", GFX942),)
    assert different.keys == (key("mix", GFX942, 0), key("mix", GFX942, 1))
    assert different.sections == (".note", ".text")
    assert different.deltas == (Delta("resources", "vgprs", "24", "32"), Delta("resources", "code_bytes", "640", "652"))
    assert different.notes == ("first difference: .text at byte 0x40",)
    assert section.findings == ()  # every one of them is in a difference


def test_findings_that_no_difference_shows_stay_in_the_section():
    section = contributions.page(made.full()).sections[2]
    assert [finding.subject for finding in section.findings] == [key("wide", GFX950)]
    (changed,) = (block for block in section.blocks if isinstance(block, Difference))
    assert (changed.keys, changed.state.tone) == ((key("scale", GFX950, 2),), Tone.NOTICE)


def test_instructions_are_lines_with_gaps():
    blocks = contributions.page(made.full()).sections[1].blocks
    (different,) = (block for block in blocks if isinstance(block, Difference) and block.lines)
    assert different.lines == (
        Line("", ""),
        Line("s_nop 0", "s_nop 0"),
        Line("v_mul_f32_e32 v2, 0x40400000, v2", "v_mul_f32_e32 v2, 0x40a00000, v2"),
        Line("", "v_add_f32_e32 v2, 1.0, v2"),
        Line("s_endpgm", "s_endpgm"),
    )
    assert [line.left_out for line in different.lines] == [True, False, False, False, False]
    assert [line.changed for line in different.lines] == [False, False, True, True, False]


def test_a_comparison_that_proves_nothing_shows_nothing_as_good():
    compared = made.identity(Comparison(key("scale", GFX942), State.IDENTICAL, False, {}), obstacle="other compilers")
    made_of = page(compared)
    assert made_of.verdict is Verdict.UNKNOWN
    assert [row.tone for row in made_of.variants] == [Tone.UNKNOWN]


def test_compile_times_are_shown_where_they_were_measured():
    tables = {b.title: b for b in contributions.page(made.full()).sections[3].blocks if isinstance(b, Table)}
    assert tables["Compile times by kernel and target"].rows == (("scale[hip:gfx942]", "3", "0.30", "0.20"),)
    assert [row[1] for row in tables["Slowest variants"].rows] == ["0.20", "0.10", "0.00"]


def test_a_report_of_an_unknown_type_shows_its_findings_alone():
    assert contributions.contribution(object()) == contributions.Contribution()
