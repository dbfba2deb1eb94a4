"""The HIP driver on a library without a GPU, whose functions have AMD's names and signatures."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from aotkern.drivers import Launch
from aotkern.drivers import hip as hip_module
from aotkern.drivers.hip import SIGNATURES, open_driver
from aotkern.errors import DriverError, InputError, MissingToolError
from aotkern.settings import Settings
from aotkern.target import Target


@pytest.fixture
def driver(hip):
    return open_driver(Settings(hip_library=hip.path))


@pytest.fixture(scope="session")
def hsaco(compile_mixed):
    return compile_mixed("gfx942").data


def launch(function, **changes):
    values = {
        "function": function,
        "grid": (5, 2, 1),
        "threads": 256,
        "shared": 0,
        "stream": 0x70,
        "arguments": bytearray(struct.pack("<Qf?xxxqixxxxQQ", 4096, 0.5, True, 7, 9, 0, 0)),
        "offsets": (0, 8, 12, 16, 24, 32, 40),
    }
    return Launch(**{**values, **changes})


def test_devices_and_their_features(hip):
    hip.reset("gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-", "gfx1100")
    devices = open_driver(Settings(hip_library=hip.path)).devices()
    assert [device.arch for device in devices] == ["gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-", "gfx1100"]
    assert [device.target for device in devices] == [
        Target.parse("hip:gfx942:sramecc+:xnack-"),
        Target.parse("hip:gfx950:sramecc+:xnack-"),
        None,
    ]
    assert [device.units for device in devices] == [304, 256, 256]
    assert [device.shared_bytes for device in devices] == [65_536, 163_840, 65_536]
    assert devices[0].max_grid == (2**31 - 1, 65_536, 65_536)


def test_launch_passes_the_buffer_as_extra(hip, driver, hsaco):
    function = driver.load(0, hsaco, "mixed", 0)
    call = launch(function)
    driver.launch(call)
    assert hip.log == [
        "load device=0",
        "launch device=0 kernel=mixed grid=5,2,1 block=256 shared=0 stream=0x70 args=" + call.arguments.hex(),
    ]


def test_buffer_that_is_larger_than_the_kernel_takes_is_refused(driver, hsaco):
    function = driver.load(0, hsaco, "mixed", 0)
    with pytest.raises(DriverError, match=r"hipErrorInvalidValue \(1\)"):
        driver.launch(launch(function, arguments=bytearray(4096)))


def test_cooperative_launch_passes_pointers_and_knows_its_limit(hip, driver, hsaco):
    function = driver.load(0, hsaco, "mixed", 0)
    driver.launch(launch(function, grid=(304, 2, 1), cooperative=True))
    assert hip.log[-1].startswith("cooperative device=0 kernel=mixed grid=304,2,1")
    assert hip.log[-1].endswith(f"args={4096:016x}")
    with pytest.raises(InputError, match="at most 608 workgroups, found 609"):
        driver.launch(launch(function, grid=(609, 1, 1), cooperative=True))
    assert len([line for line in hip.log if line.startswith("cooperative")]) == 1


@pytest.mark.parametrize("change", [{"cluster": 2}, {"overlap": True}])
def test_what_amd_does_not_have_is_refused(driver, hsaco, change):
    function = driver.load(0, hsaco, "mixed", 0)
    with pytest.raises(InputError, match="AMD has none"):
        driver.launch(launch(function, **change))


def test_every_call_happens_on_its_device_and_the_current_one_is_restored(hip, hsaco):
    hip.reset("gfx950:sramecc+:xnack-", "gfx942:sramecc+:xnack-")
    driver = open_driver(Settings(hip_library=hip.path))
    function = driver.load(1, hsaco, "mixed", 0)
    driver.launch(launch(function))
    driver.release(1, driver.allocate(1, 1000, 0x70), 0x70)
    assert driver.current_device() == 0
    events = [line.split(" args=")[0] for line in hip.log]
    assert events == [
        "set 1", "load device=1", "set 0",
        "set 1", "launch device=1 kernel=mixed grid=5,2,1 block=256 shared=0 stream=0x70", "set 0",
        "set 1", "malloc device=1 size=1000 stream=0x70", "set 0",
        "set 1", "free device=1 stream=0x70", "set 0",
    ]  # fmt: skip


def test_code_object_for_another_architecture(hip, hsaco):
    hip.reset("gfx950:sramecc+:xnack-")
    driver = open_driver(Settings(hip_library=hip.path))
    with pytest.raises(DriverError) as caught:
        driver.load(0, hsaco, "mixed", 0)
    assert (caught.value.code, caught.value.name) == (209, "hipErrorNoBinaryForGpu")
    assert "another architecture" in caught.value.advice
    assert "gfx950:sramecc+:xnack-" in str(caught.value)


def test_missing_kernel_unloads_the_module_again(hip, driver, hsaco):
    with pytest.raises(DriverError, match="hipErrorNotFound"):
        driver.load(0, hsaco, "other", 0)
    assert hip.log == ["load device=0", "unload device=0"]


def test_many_loads_make_the_device_current_once(hip, hsaco):
    hip.reset("gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack-")
    driver = open_driver(Settings(hip_library=hip.path))
    with driver.loading(1) as load:
        functions = [load(hsaco, "mixed", 0) for _ in range(3)]
    assert hip.log == ["set 1", *["load device=1"] * 3, "set 0"]
    assert {function.device for function in functions} == {1}
    with pytest.raises(DriverError, match="hipErrorNotFound"), driver.loading(1) as load:
        load(hsaco, "other", 0)
    assert hip.log[-4:] == ["set 1", "load device=1", "unload device=1", "set 0"]


def test_lds_over_the_limit_names_both_numbers(hip, driver, hsaco):
    with pytest.raises(InputError, match="at most 65536 bytes on device 0, found 98304"):
        driver.load(0, hsaco, "mixed", 98_304)
    assert hip.log == []


@pytest.mark.parametrize("code", [1, 2, 9, 100, 200, 209, 400, 500, 719, 720, 900, 12345])
@pytest.mark.parametrize("operation", ["hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel"])
def test_every_error_keeps_its_code(hip, driver, hsaco, operation, code):
    hip.fail(operation, code)
    with pytest.raises(DriverError) as caught:
        driver.launch(launch(driver.load(0, hsaco, "mixed", 0)))
    error = caught.value
    assert (error.driver, error.operation, error.code) == ("hip", operation, code)
    assert error.name.startswith("hipError")
    assert "mixed" in error.context
    assert driver.current_device() == 0


def use_everything(path, hsaco):
    driver = open_driver(Settings(hip_library=path))
    function = driver.load(0, hsaco, "mixed", 0)
    driver.launch(launch(function))
    driver.launch(launch(function, cooperative=True))
    driver.capturing(0, 0x70)
    driver.release(0, driver.allocate(0, 64, 0), 0)
    driver.unload(function)


@pytest.mark.parametrize("operation", sorted(set(SIGNATURES) - {"hipSetDevice"}))
def test_every_entry_point_is_checked(hip, hsaco, operation):
    hip.fail(operation, 999)
    with pytest.raises(DriverError) as caught:
        use_everything(hip.path, hsaco)
    assert (caught.value.operation, caught.value.code) == (operation, 999)


def test_capture_is_seen_and_loading_beside_it_is_safe(hip, driver, hsaco):
    hip.capture(0x70)
    assert driver.capturing(0, 0x70)
    assert not driver.capturing(0, 0x80)
    assert driver.capturing(0, 0)
    driver.load(0, hsaco, "mixed", 0)
    hip.capture(0x70, on=False)
    assert not driver.capturing(0, 0x70)
    assert not driver.capturing(0, 0)


def test_machine_without_a_gpu(hip):
    hip.reset()
    with pytest.raises(DriverError, match=r"hipErrorNoDevice \(100\).*HIP_VISIBLE_DEVICES"):
        open_driver(Settings(hip_library=hip.path)).devices()


def test_machine_without_hip(tmp_path):
    with pytest.raises(MissingToolError, match="ROCm 6 or newer"):
        open_driver(Settings(hip_library=tmp_path / "libamdhip64.so"))


def test_library_without_the_functions(tmp_path):
    import ctypes.util

    libc = ctypes.util.find_library("c")
    with pytest.raises(MissingToolError, match="hipInit"):
        open_driver(Settings(hip_library=Path(libc)))


KINDS = {"c_void_p": "pointer", "c_char_p": "pointer", "c_int": "4", "c_uint": "4", "c_ulong": "8"}


def kind_of(ctype) -> str:
    return KINDS.get(ctype.__name__, "pointer" if ctype.__name__.startswith("LP_") else ctype.__name__)


def kind_in_header(text: str) -> str:
    """`unsigned int gridDimX` -> 4, `hipModule_t* module` -> pointer: what the calling convention sees."""
    handles = ("hipModule_t", "hipFunction_t", "hipStream_t")
    if "*" in text or text.split(maxsplit=1)[0] in handles:
        return "pointer"
    return "8" if text.startswith("size_t") else "4"


def test_signatures_are_those_of_amds_header():
    """Triton's wheel carries AMD's public header, hip/hip_runtime_api.h."""
    backend = pytest.importorskip("triton.backends.amd")
    header = Path(backend.__path__[0], "include", "hip", "hip_runtime_api.h").read_text()
    for name, types in SIGNATURES.items():
        declared = name.removesuffix("R0600")  # a macro of the header maps the one to the other
        match = re.search(rf"^hipError_t {declared}\((.*?)\);", header, re.MULTILINE | re.DOTALL)
        assert match, name
        parameters = [" ".join(part.split()) for part in match[1].split(",")]
        assert [kind_in_header(part) for part in parameters] == [kind_of(item) for item in types], name
    assert "#define hipGetDeviceProperties hipGetDevicePropertiesR0600" in header


def test_numbers_are_those_of_amds_header(tmp_path):
    import shutil
    import subprocess

    backend = pytest.importorskip("triton.backends.amd")
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    names = {
        "hipDeviceAttributeMaxGridDimX": hip_module._MAX_GRID[0],
        "hipDeviceAttributeMaxGridDimZ": hip_module._MAX_GRID[2],
        "hipDeviceAttributeMultiprocessorCount": hip_module._MULTIPROCESSORS,
        "hipDeviceAttributeMaxSharedMemoryPerBlock": hip_module._SHARED_PER_BLOCK,
        "sizeof(hipDeviceProp_t)": hip_module._PROPERTIES_BYTES,
        "offsetof(hipDeviceProp_t, gcnArchName)": hip_module._ARCH,
        "offsetof(hipDeviceProp_t, name)": hip_module._NAME,
        "(long)HIP_LAUNCH_PARAM_BUFFER_POINTER": hip_module._BUFFER_POINTER,
        "(long)HIP_LAUNCH_PARAM_BUFFER_SIZE": hip_module._BUFFER_SIZE,
        "(long)HIP_LAUNCH_PARAM_END": hip_module._END,
        "hipErrorStreamCaptureImplicit": hip_module._CAPTURE_IMPLICIT,
        "hipStreamCaptureModeRelaxed": hip_module._MODE_RELAXED,
    }
    source = tmp_path / "numbers.c"
    checks = "\n".join(f'_Static_assert({name} == {value}, "{name}");' for name, value in names.items())
    source.write_text(f"#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n{checks}\n")
    include = Path(backend.__path__[0], "include")
    command = [compiler, "-D__HIP_PLATFORM_AMD__", f"-I{include}", "-fsyntax-only", str(source)]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


def test_hidden_arguments_are_left_to_the_runtime(driver, compile_kernel):
    """HIP copies what the note calls visible out of the buffer and fills in hidden arguments itself."""
    from aotkern import codeobject

    image = compile_kernel("counted", "gfx942", {"x": "*i32"}).data
    arguments = codeobject.read(image, "counted").arguments
    hidden = min(argument.offset for argument in arguments if argument.kind.startswith("hidden_"))
    function = driver.load(0, image, "counted", 0)
    driver.launch(launch(function, arguments=bytearray(hidden), offsets=(0, 8, 16)))
    with pytest.raises(DriverError, match="hipErrorInvalidValue"):
        driver.launch(launch(function, arguments=bytearray(hidden + 8), offsets=(0, 8, 16)))
