"""What aotkern relies on in Triton 3.9.0, each as a test: the Triton that breaks one of these is noticed here."""

import pytest

pytest.importorskip("triton")

import triton
from making import HEAD, written
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aotkern import codeobject
from aotkern.build.registry import load
from aotkern.codeobject import Role

KERNEL = (
    HEAD
    + """
@triton.jit
def kernel(x, n, unused, V: tl.constexpr):
    tl.store(x + n, V)


KERNELS = (Kernel(kernel),)
"""
)
HIP = {"gfx942": GPUTarget("hip", "gfx942", 64), "gfx950": GPUTarget("hip", "gfx950", 64)}


@pytest.fixture(autouse=True)
def own_import_path(monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))


@pytest.fixture
def function(tmp_path):
    """The kernel, from a file of its own; `text` in front of it moves it down."""

    def made(text="", folder="a"):
        (kernel,) = load([written(tmp_path / folder, text + KERNEL)])
        return kernel.declaration.function

    return made


def compiled(function, target=HIP["gfx942"], constants=None, attributes=None, **options):
    constants = {(3,): 1.0} if constants is None else constants
    fixed = {place for (place,) in constants}
    signature = {
        name: "constexpr" if place in fixed else kind
        for place, (name, kind) in enumerate([("x", "*fp32"), ("n", "i32"), ("unused", "i32"), ("V", "constexpr")])
    }
    return triton.compile(ASTSource(function, signature, constants, attributes or {}), target, options)


def facts(kernel):
    return codeobject.read(kernel.asm["hsaco"], "x")


def digests(kernel, role):
    return {section.name: section.digest for section in facts(kernel).sections if section.role is role}


def test_compiling_touches_no_driver(function, pinned_process, monkeypatch):
    monkeypatch.setattr(
        type(triton.runtime.driver), "active", property(lambda _: pytest.fail("a driver was asked for"))
    )
    with pytest.raises(pytest.fail.Exception):
        assert triton.runtime.driver.active
    assert compiled(function()).asm["hsaco"].startswith(b"\x7fELF")
    assert compiled(function(), GPUTarget("cuda", 90, 32)).asm["cubin"].startswith(b"\x7fELF")


def test_a_misspelt_option_is_dropped_in_silence(function, pinned_process):
    kernel = function()
    assert compiled(kernel, wave_per_eu=3).asm["hsaco"] == compiled(kernel).asm["hsaco"]


@pytest.mark.parametrize(("setting", "enabled"), [("0", False), ("1", True)])
def test_the_default_of_fusion_is_a_matter_of_the_environment(monkeypatch, setting, enabled):
    from triton.compiler.compiler import make_backend

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", setting)
    for target in (*HIP.values(), GPUTarget("cuda", 90, 32)):
        assert make_backend(target).parse_options({}).enable_fp_fusion is enabled


def test_without_line_information_neither_folder_nor_line_is_in_the_binary(function, pinned_process):
    here, there = function(), function("# moved\n\n\n", "another folder")
    assert compiled(here).asm["hsaco"] == compiled(there).asm["hsaco"]


def test_with_line_information_the_folder_is(function, pinned_process, monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "0")
    here, there = compiled(function()), compiled(function(folder="another folder"))
    assert here.asm["hsaco"] != there.asm["hsaco"]
    assert facts(here).identity == facts(there).identity


def test_tritons_own_key_moves_with_the_line_and_not_with_the_folder(function):
    assert function().cache_key == function(folder="another folder").cache_key
    assert function().cache_key != function("# moved down\n", "third").cache_key


def test_equal_text_on_two_chips_is_told_apart_by_the_flags(function, pinned_process):
    old, new = (compiled(function(), target) for target in HIP.values())
    assert digests(old, Role.CODE) == digests(new, Role.CODE)
    assert facts(old).e_flags & 0xFF == 0x4C
    assert facts(new).e_flags & 0xFF == 0x4F
    assert facts(old).identity != facts(new).identity


def test_a_wave_limit_leaves_the_text_alone(function, pinned_process):
    plain, limited = compiled(function()), compiled(function(), waves_per_eu=3)
    assert digests(plain, Role.CODE) == digests(limited, Role.CODE)
    assert facts(plain).identity != facts(limited).identity


def test_an_argument_that_is_never_read_changes_no_byte_but_a_one_is_no_parameter(function, pinned_process):
    kernel = function()
    plain = compiled(kernel)
    assert compiled(kernel, attributes={(2,): [["tt.divisibility", 16]]}).asm["hsaco"] == plain.asm["hsaco"]
    one = compiled(kernel, constants={(2,): 1, (3,): 1.0})
    declared = [[a for a in facts(k).arguments if not a.kind.startswith("hidden_")] for k in (plain, one)]
    assert [len(arguments) for arguments in declared] == [5, 4]


def test_two_scratch_pointers_follow_the_parameters(function, pinned_process):
    arguments = [a for a in facts(compiled(function())).arguments if not a.kind.startswith("hidden_")]
    assert [(a.offset, a.size) for a in arguments] == [(0, 8), (8, 4), (12, 4), (16, 8), (24, 8)]
    metadata = compiled(function()).metadata
    assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


def test_the_symbol_and_the_launch_are_in_the_metadata(function, pinned_process):
    metadata = compiled(function(), num_warps=2).metadata
    assert metadata.name == "kernel"
    assert (metadata.num_warps, metadata.num_ctas, metadata.shared) == (2, 1, 0)
    assert metadata.launch_cooperative_grid is False


def test_the_code_object_version_is_5(function, pinned_process):
    assert facts(compiled(function())).code_version == 5


def test_one_cache_folder_hands_out_what_lies_in_it(function, pinned_process, tmp_path, monkeypatch):
    # Why a proof compiles in a private, empty cache: whatever is under the key is taken for the result.
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "0")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "shared"))
    kernel = function()
    compiled(kernel)
    (path,) = (tmp_path / "shared").rglob("*.hsaco")
    path.write_bytes(b"planted")
    assert compiled(kernel).asm["hsaco"] == b"planted"


def test_the_specialisation_of_integers_and_pointers():
    from triton._C.libtriton import native_specialize_impl
    from triton.compiler.compiler import make_backend

    backend = make_backend(HIP["gfx942"])

    def of(value):
        return native_specialize_impl(type(backend), value, False, True, True)

    assert [of(n)[0] for n in (5, 2**31 - 1, 2**31, 2**63)] == ["i32", "i32", "i64", "u64"]
    assert [of(n)[1] for n in (0, 16, -32, 3)] == ["D", "D", "D", ""]
    assert of(1) == ("constexpr", 1)
    assert of(2.5)[0] == "fp32"
    assert of(True)[0] == "u1"
