"""Every state of the comparison, once from hand-made manifests and once from real edits of a kernel source."""

import json
from dataclasses import replace

import jsonschema
import pytest
from making import GFX942, GFX950, HEAD, SCALE, SM90, built, code_object, edited, written

from aotkern import codeobject, schemas
from aotkern.audit.findings import Verdict
from aotkern.audit.identity import IdentityReport, Side, State, compare
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.cli import reports as files
from aotkern.codeobject import Role, Section, elf, explain, section_bytes
from aotkern.digest import Digest
from aotkern.manifest import KernelEntry, Launch, Manifest, ObjectEntry, VariantEntry
from aotkern.report import machine
from aotkern.spec import Constant, Parameter
from aotkern.target import Target

PLAIN = Launch(0, 4)
KEY = "add[hip:gfx942](x:*fp32)"


def hand(variants, *, source="source", toolchain=None, target=GFX942):
    """A side whose variants are `key: (code object, launch, options)`."""
    rows, objects = [], {}
    for text, (code, launch, options) in variants.items():
        facts = code.to_json() if hasattr(code, "to_json") else code
        entry = ObjectEntry(Digest.of(repr(facts).encode()), 100, facts)
        objects[entry.digest] = entry
        named = {name: Constant.of(value) for name, value in options.items()}
        rows.append((VariantEntry(text, Digest.of(b""), entry.digest, launch, ""), named))
    kernels = {text.partition("[")[0] for text in variants}
    entries = [KernelEntry(name, (Parameter("x"),), Digest.of(source.encode())) for name in kernels]
    return Side("hand", Manifest.make(target, toolchain or {"triton": "3.9.0"}, {}, entries, objects, rows))


def only(report):
    (comparison,) = report.comparisons
    return comparison


def one(code, launch=PLAIN, options=(), key=KEY, **more):
    return hand({key: (code, launch, dict(options))}, **more)


def section(code, role, **changes):
    """`code` with the section of this role changed."""
    return replace(code, sections=tuple(replace(s, **changes) if s.role is role else s for s in code.sections))


BASE = code_object("add")
OTHER = Digest.of(b"other")


def test_equal_bytes_are_identical():
    report = compare(one(BASE), one(BASE))
    assert only(report).state is State.IDENTICAL
    assert report.verdict is Verdict.CLEAN
    assert report.findings == ()


def test_debug_sections_alone_are_the_same_code():
    debug = Section(".debug_line", Role.DEBUG, 5, OTHER)
    report = compare(one(BASE), one(replace(BASE, sections=(debug, *BASE.sections))))
    assert only(report).state is State.SAME_CODE
    assert only(report).details["sections"] == [".debug_line"]
    assert report.verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        (section(BASE, Role.DESCRIPTOR, digest=OTHER), ("sections", [".rodata"])),
        (section(BASE, Role.METADATA, digest=OTHER), ("sections", [".note"])),
        (replace(BASE, e_flags=0x54F), ("header", {"e_flags": ["0x54c", "0x54f"]})),
        (replace(BASE, symbol="sub"), ("header", {"symbol": ["add", "sub"]})),
        (replace(BASE, abi_version=4), ("header", {"abi_version": [3, 4]})),
    ],
    ids=["descriptor", "note", "flags", "symbol", "abi"],
)
def test_equal_text_is_not_enough(changed, detail):
    report = compare(one(BASE), one(changed))
    assert only(report).state is State.METADATA
    assert only(report).details[detail[0]] == detail[1]
    assert report.verdict is Verdict.FINDINGS


def test_another_launch_of_the_same_bytes_is_no_identity():
    report = compare(one(BASE), one(BASE, Launch(1024, 4)))
    assert only(report).state is State.METADATA
    assert only(report).message == "launch: shared 0 -> 1024"
    debug = section(BASE, Role.CODE)
    assert only(compare(one(BASE), one(debug, Launch(0, 8)))).state is State.METADATA


def test_other_instructions_are_different_and_say_what_they_cost():
    changed = section(BASE, Role.CODE, digest=OTHER, size=80)
    changed = replace(changed, resources=replace(BASE.resources, vgprs=20, vgpr_spills=2))
    report = compare(one(BASE), one(changed))
    assert only(report).state is State.DIFFERENT
    assert only(report).details["resources"] == {"code_bytes": [64, 80], "vgpr_spills": [0, 2], "vgprs": [12, 20]}
    (finding,) = report.findings
    assert (finding.audit, finding.subject, finding.state) == ("identity", KEY, "different")
    assert "vgprs 12 -> 20" in finding.message


def test_missing_and_new_variants_are_told():
    report = compare(one(BASE, key="add[hip:gfx942](x:*fp32)"), one(BASE, key="add[hip:gfx942](x:*bf16)"))
    assert {c.key: c.state for c in report.comparisons} == {
        "add[hip:gfx942](x:*fp32)": State.MISSING,
        "add[hip:gfx942](x:*bf16)": State.NEW,
    }
    assert report.verdict is Verdict.FINDINGS


def test_facts_that_cannot_be_read_are_told():
    report = compare(one(BASE), one({"target": "nonsense"}))
    assert only(report).state is State.UNREADABLE
    assert "exactly the fields" in only(report).details["reason"]
    assert report.verdict is Verdict.FINDINGS


def test_bytes_that_cannot_be_read_are_told():
    changed = one(section(BASE, Role.CODE, digest=OTHER))
    report = compare(replace(one(BASE), read=lambda _: b"junk"), replace(changed, read=lambda _: b"junk"))
    assert only(report).state is State.UNREADABLE


def test_a_variant_with_other_options_is_compared_with_the_one_it_replaces():
    old = one(BASE, key=KEY + "{num_warps=4,waves_per_eu=0}", options={"waves_per_eu": 0})
    new = one(
        section(BASE, Role.DESCRIPTOR, digest=OTHER),
        key=KEY + "{num_warps=4,waves_per_eu=2}",
        options={"waves_per_eu": 2},
    )
    comparison = only(compare(old, new))
    assert comparison.state is State.METADATA
    assert comparison.key == KEY + "{num_warps=4,waves_per_eu=2}"
    assert comparison.details["options"] == {"waves_per_eu": ["0", "2"]}


def test_no_new_variant_is_lost_beside_one_that_replaces_another():
    def side(*warps):
        return hand({f"{KEY}{{num_warps={n}}}": (BASE, Launch(0, 4), {"num_warps": n}) for n in warps})

    report = compare(side(1), side(2, 4, 8))
    assert sorted(str(c.state) for c in report.comparisons) == ["identical", "new", "new"]
    assert report.verdict is Verdict.FINDINGS
    assert compare(side(1, 2, 4), side(8)).counts == {State.IDENTICAL: 1, State.MISSING: 2}


def test_a_changed_source_with_equal_code_is_told_and_passes():
    report = compare(one(BASE), one(BASE, source="another"))
    assert report.changed_sources == 1
    assert report.verdict is Verdict.CLEAN


def test_nothing_compared_proves_nothing():
    empty = Side("hand", Manifest.make(GFX942, {}, {}, (), {}, []))
    report = compare(empty, empty)
    assert report.verdict is Verdict.UNKNOWN
    assert report.obstacle == "nothing was compared: neither side has a variant for hip:gfx942"
    assert IdentityReport("t", "a", "b", ()).verdict is Verdict.UNKNOWN


def test_two_targets_prove_nothing():
    report = compare(one(BASE), one(BASE, target=GFX950))
    assert report.verdict is Verdict.UNKNOWN
    assert report.obstacle == "the baseline is for hip:gfx942, the candidate for hip:gfx950"


def test_another_toolchain_proves_nothing_unless_it_is_asked_for():
    old, new = one(BASE, toolchain={"triton": "3.8.0"}), one(BASE)
    report = compare(old, new)
    assert report.verdict is Verdict.UNKNOWN
    assert report.obstacle == "baseline and candidate were not compiled alike (triton: 3.8.0 -> 3.9.0)"
    assert compare(old, new, same_toolchain=False).verdict is Verdict.CLEAN


# From here on with code that was compiled.


def side(label, build):
    return Side(label, build.manifest, build.objects.__getitem__)


@pytest.fixture
def against(sample, tmp_path):
    """The comparison of an edited `SCALE` with the sample, for one target or for both."""

    def compared(*changes, text=SCALE, **request):
        source = written(tmp_path / "edited", edited(text, *changes), "scale.py")
        result = built(source, GFX942, GFX950, **request)
        return tuple(
            compare(side("before", sample.build(target)), side("after", result.targets[target]))
            for target in (GFX942, GFX950)
        )

    return compared


def test_comments_blank_lines_and_moving_leave_the_code_alone(against):
    reports = against(
        ("    # what one value becomes\n", "    # another comment\n\n\n"),
        ("FACTOR: tl", "\n\n# moved down by a comment\n\nFACTOR: tl"),
    )
    assert [report.counts for report in reports] == [{State.IDENTICAL: 2}, {State.IDENTICAL: 3}]
    assert [report.changed_sources for report in reports] == [0, 0]


def test_renaming_file_and_folder_leaves_the_code_alone(sample, tmp_path):
    source = written(tmp_path / "another folder", SCALE, "renamed.py")
    report = compare(side("before", sample.build(GFX942)), side("after", built(source).targets[GFX942]))
    assert report.counts == {State.IDENTICAL: 2}
    assert report.verdict is Verdict.CLEAN


def test_a_changed_docstring_is_told_as_source_only(against):
    old, _ = against(('"""Multiply every element."""', '"""Multiply each element."""'))
    assert old.verdict is Verdict.CLEAN
    assert old.changed_sources == 2


def test_an_edit_of_one_form_is_listed_there_and_leaves_the_other_target_alone(against):
    old, new = against(("tl.store(x, -tl.load(x))", "tl.store(x, 0.5 - tl.load(x))"))
    assert old.verdict is Verdict.CLEAN
    assert old.counts == {State.IDENTICAL: 2}
    assert new.verdict is Verdict.FINDINGS
    (finding,) = new.findings
    assert finding.subject == "negate[hip:gfx950](x:*fp32:D){num_warps=1}"
    assert finding.state == "different"


@pytest.mark.parametrize(
    "change",
    [("return value * FACTOR", "return value + FACTOR"), ("tl.constexpr(3)", "tl.constexpr(5)")],
    ids=["callee", "global"],
)
def test_an_edit_of_what_the_kernel_uses_is_reported(against, change):
    old, _ = against(change)
    assert old.counts == {State.DIFFERENT: 2}
    assert all(c.source_changed for c in old.comparisons)


def test_the_first_difference_is_where_the_instructions_first_differ(against, sample, tmp_path):
    source = written(tmp_path, edited(SCALE, ("tl.constexpr(3)", "tl.constexpr(5)")), "scale.py")
    after = built(source).targets[GFX942]
    before = sample.build(GFX942)
    for comparison in compare(side("a", before), side("b", after)).comparisons:
        texts = [
            section_bytes(build.objects[build.manifest.by_text[comparison.key].object], ".text", "x")
            for build in (before, after)
        ]
        at = next(i for i in range(max(map(len, texts))) if texts[0][i : i + 1] != texts[1][i : i + 1])
        assert comparison.details["first_difference"] == f".text at byte {at:#x}"


def test_without_bytes_the_sections_still_differ(against, sample, tmp_path):
    source = written(tmp_path, edited(SCALE, ("tl.constexpr(3)", "tl.constexpr(5)")), "scale.py")
    after = built(source).targets[GFX942]
    report = compare(replace(side("a", sample.build(GFX942)), read=None), side("b", after))
    assert report.counts == {State.DIFFERENT: 2}
    assert all("first_difference" not in c.details for c in report.comparisons)


def test_a_wave_limit_alone_is_reported_although_the_text_is_equal(against):
    old, _ = against(
        ('options={"num_warps": 1},\n        ),', 'options={"num_warps": 1, "waves_per_eu": 3},\n        ),')
    )
    assert old.counts == {State.METADATA: 2}
    for comparison in old.comparisons:
        assert ".rodata" in comparison.details["sections"] or ".note" in comparison.details["sections"]
        assert ".text" not in comparison.details["sections"]
        assert comparison.details["options"] == {"waves_per_eu": ["0", "3"]}


def test_line_information_of_another_folder_is_the_same_code(tmp_path):
    text = edited(SCALE, ('("gfx942", "gfx950")', '("gfx942",)'))
    sides = [
        side(name, built(written(tmp_path / name, text, "scale.py"), line_info=True).targets[GFX942])
        for name in ("here", "over there")
    ]
    report = compare(*sides)
    assert report.counts == {State.SAME_CODE: 2}
    assert all(set(c.details) == {"sections"} for c in report.comparisons)
    assert all(
        name.startswith((".debug", ".str", ".sym")) for c in report.comparisons for name in c.details["sections"]
    )


CLOSURE = (
    HEAD
    + """
def made(factor):
    F = tl.constexpr(factor)

    @triton.jit
    def scaled(x):
        tl.store(x, tl.load(x) * F)

    return scaled


KERNELS = (Kernel(made(2.0), Space(("gfx942",), {"x": Pointer("fp32", "any")}), name="scaled"),)
"""
)


def test_a_closure_value_is_reported(tmp_path):
    sides = [
        side(value, built(written(tmp_path / value, edited(CLOSURE, ("2.0", value)))).targets[GFX942])
        for value in ("2.0", "3.0")
    ]
    report = compare(*sides)
    assert report.counts == {State.DIFFERENT: 1}
    assert only(report).source_changed


RENAMED = (
    HEAD
    + """
@triton.jit
def first(x):
    tl.store(x, 1.0)


KERNELS = (Kernel(first, Space(("cuda:90",), {"x": Pointer("fp32")}), name="k"),)
"""
)


def test_a_renamed_function_is_told_by_its_symbol_and_not_called_unreadable(tmp_path):
    # A cubin names its sections by the function, so that one side has no section of the other's name.
    sides = [
        side(name, built(written(tmp_path / name, edited(RENAMED, ("first", name))), SM90).targets[SM90])
        for name in ("first", "second")
    ]
    comparison = only(compare(*sides))
    assert comparison.state is State.DIFFERENT
    assert comparison.details["header"]["symbol"] == ["first", "second"]


def test_only_some_variants_may_be_meant_and_the_rest_is_counted(sample):
    build = sample.build(GFX942)
    side = Side("whole", build.manifest)
    first = build.manifest.variants[0].text
    report = compare(side, side, (first,))
    assert [comparison.key for comparison in report.comparisons] == [first]
    assert report.besides == len(build.manifest.variants) - 1
    assert "left aside" in report.summary
    assert compare(side, side, ("no such kernel",)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("target", "e_flags", "named"),
    [
        ("gfx942:xnack+", 0x74C, {"xnack": ["any", "on"]}),
        ("gfx942:sramecc-", 0x94C, {"sramecc": ["any", "off"]}),
    ],
)
def test_a_change_of_the_elf_flags_names_the_feature(target, e_flags, named):
    after = replace(BASE, target=Target.parse(target), e_flags=e_flags)
    assert explain.features(replace(BASE, target=Target.parse("gfx942")), after) == named


def test_a_change_of_the_descriptor_is_named_in_every_report(sample, tmp_path):
    bundle = sample.bundle(GFX942)
    variant = bundle.manifest.variants[0]
    data = bytearray(bundle.object(variant.object))
    image = elf.parse(bytes(data), "x")
    (symbol,) = (symbol for symbol in image.symbols(".dynsym") if symbol.name.endswith(".kd"))
    section = image.section(".rodata")
    data[section.offset + symbol.value - section.address + 50] ^= 1  # bit 16 of compute_pgm_rsrc1
    changed = bytes(data)
    digest = Digest.of(changed)
    manifest = bundle.manifest
    rows = {entry.digest: entry for entry in manifest.objects}
    rows[digest] = ObjectEntry(digest, len(changed), codeobject.read(changed, "x").to_json())
    variants = [
        (replace(v, object=digest) if v.object == variant.object else v, manifest.options[v.options])
        for v in manifest.variants
    ]
    used = {entry.object for entry, _ in variants}
    rows = {name: row for name, row in rows.items() if name in used}
    made = Manifest.make(manifest.target, manifest.toolchain, manifest.environment, manifest.kernels, rows, variants)
    read = {**{entry.digest: bundle.object(entry.digest) for entry in manifest.objects}, digest: changed}
    sides = (Side("before", manifest, bundle.object), Side("after", made, read.__getitem__))
    report = compare(*sides)
    bad = [comparison for comparison in report.comparisons if not comparison.state.passes]
    words = "float_denorm_mode_32 3 (keep) -> 2 (flush in sources)"
    assert bad
    for comparison in bad:
        assert comparison.state is State.METADATA
        assert comparison.details["descriptor"] == {"float_denorm_mode_32": ["3 (keep)", "2 (flush in sources)"]}
        assert words in comparison.message
    document = json.loads(json.dumps(machine.identity(report)))
    jsonschema.Draft202012Validator(schemas.load("identity")).validate(document)
    step = StepResult.of("identity", "gfx942", report, 0.0, "")
    for ending in ("html", "md", "xml", "sarif", "json", "txt"):
        path = tmp_path / f"report.{ending}"
        files.write((path,), GateReport("audit identity", (step,), {}))
        plain = path.read_text().replace("\\", "")  # Markdown escapes underscores
        assert "float_denorm_mode_32" in plain, ending


# What lies outside of the patterns.

SELECTED = "add[hip:gfx942](x:*fp32,N=4)"
EXTRA = "add[hip:gfx942](x:*fp32,N=77)"
FOREIGN = "other[hip:gfx942](x:*fp32)"


def declared(*keys, aside=()):
    made = hand({key: (BASE, PLAIN, {}) for key in keys})
    return replace(made, aside=tuple(aside))


def test_a_new_variant_of_a_selected_kernel_is_found_outside_of_the_patterns():
    report = compare(declared(SELECTED), declared(SELECTED, EXTRA), ["*N=4)"])
    assert report.verdict is Verdict.FINDINGS
    assert [(finding.subject, finding.state) for finding in report.findings] == [(EXTRA, "new")]


def test_a_declared_variant_that_was_not_built_counts_too():
    report = compare(declared(SELECTED), declared(SELECTED, aside=[EXTRA]), ["*N=4)"])
    assert [finding.subject for finding in report.findings] == [EXTRA]
    assert compare(declared(SELECTED, aside=[EXTRA]), declared(SELECTED, aside=[EXTRA]), ["*N=4)"]).besides == 1


def test_a_new_kernel_outside_of_the_patterns_is_named_and_no_finding():
    report = compare(declared(SELECTED), declared(SELECTED, FOREIGN), ["add*"])
    assert (report.verdict, report.beyond) == (Verdict.CLEAN, (FOREIGN,))
    assert report.summary.endswith(f"; the candidate has 1 others that the baseline has not: {FOREIGN}")
    document = json.loads(json.dumps(machine.identity(report)))
    assert document["beyond"] == [FOREIGN]


def test_without_patterns_nothing_is_beyond():
    report = compare(declared(SELECTED), declared(SELECTED, FOREIGN))
    assert (report.beyond, report.verdict) == ((), Verdict.FINDINGS)


def test_a_doubt_of_either_side_proves_nothing():
    doubtful = replace(declared(SELECTED), doubt="pkgy.common came from outside the revision")
    for pair in ((doubtful, declared(SELECTED)), (declared(SELECTED), doubtful)):
        report = compare(*pair)
        assert report.verdict is Verdict.UNKNOWN
        assert report.summary == "pkgy.common came from outside the revision"
