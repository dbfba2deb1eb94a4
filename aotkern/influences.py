"""Everything that decides which bytes Triton's compiler makes, and what becomes of each of them here.

Whatever enters Triton's own cache key, or can change the bytes, is in our key, or is pinned in every build, or makes a
call a miss that says so. This module is the list: `INGREDIENTS` are the parts of a compile request, `SETTINGS` the
variables and knobs around it, of every tested version of Triton together. A test derives both lists from Triton itself
and fails for what is not named here. Triton is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotkern.errors import Problem
from aotkern.spec.constant import Constant
from aotkern.target import Backend


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A part of what Triton's compiler is asked for.

    Attributes:
        name: What it is.
        triton: Where Triton's own cache key has it.
        key: Where a variant has it.
        built: How a build gets the same.
        served: What `aotkern run` and `install` compare.
        loaded: What `aotkern.load` compares, where no Triton is.
    """

    name: str
    triton: str
    key: str
    built: str
    served: str
    loaded: str


INGREDIENTS = (
    Ingredient(
        "source",
        "JITCallable.cache_key: text, callees, constexpr globals",
        "digest of the kernel's closure, beside the key",
        "imported and held against the recorded digest",
        "the digest of the function that is called",
        "nothing: a kernel is asked for by its name",
    ),
    Ingredient(
        "constants",
        "str() of each; JITCallable.cache_key of a function",
        "canonical text: exact type; module, name and digest of a function or class",
        "rebuilt as the same object, of a class or function with the same digest",
        "the text of the constant that is passed",
        "the text of the constant that is passed",
    ),
    Ingredient(
        "signature",
        "type of each parameter",
        "type of each parameter",
        "as in the key",
        "types, or wider ones of the same meaning",
        "element types and ranges of the arguments",
    ),
    Ingredient(
        "attributes",
        "name and value of each",
        "D is tt.divisibility 16, S is tt.pointer_range 32 (AMD); any other has no key",
        "the back end's own attributes of the letters",
        "the letters; any other attribute is a miss",
        "the addresses, sizes and numbers of the call",
    ),
    Ingredient(
        "options",
        "hash() of the back end's options, all fields",
        "those that differ from the defaults of a build",
        "asked for by name; all that took effect are recorded",
        "every option in effect",
        "those that the call names",
    ),
    Ingredient(
        "target",
        "backend.hash(): back end, architecture, version of ptxas; warp_size among the options",
        "back end and architecture",
        "one target, with its own wave size",
        "the device's target and its wave size",
        "the device's target",
    ),
    Ingredient(
        "compiler",
        "triton_key(): files of the installation",
        "version and digest of the compiler, beside the key",
        "the installed one, recorded",
        "the version",
        "nothing: no compiler is there",
    ),
    Ingredient(
        "settings",
        "get_cache_invalidating_env_vars()",
        "see SETTINGS",
        "a worker's environment is made from nothing",
        "every setting that is not free",
        "those that the call names",
    ),
)


class Treatment(Enum):
    """What becomes of a setting.

    KEYED: its value stands in the key, as an option under the name of its variable; a build sets it for that compile.
    OPTION: it is seen as a compile option, which is in the key and compared.
    PINNED: every build fixes it; it moves debug sections only, so it is not compared.
    FILE: it names a file; one with other content than the installation's own makes every call a miss.
    REFUSED: any value but the default makes every call a miss.
    FREE: it changes no byte, and is not in Triton's key.
    """

    KEYED = "keyed"
    OPTION = "option"
    PINNED = "pinned"
    FILE = "file"
    REFUSED = "refused"
    FREE = "free"


BOTH = (Backend.HIP, Backend.CUDA)


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable of the environment, or a knob of Triton's, or both names of one setting.

    Attributes:
        name: The variable; for a knob without one, the knob.
        knob: The knob in `triton.knobs`, as `group.name`; nothing for a variable that is read elsewhere.
        treatment: What becomes of it.
        default: The value that every build has unless a key says otherwise.
        backends: Whose compiler reads it.
    """

    name: str
    knob: str
    treatment: Treatment
    default: bool | str | None = None
    backends: tuple[Backend, ...] = BOTH

    @property
    def is_switch(self) -> bool:
        """Whether its values are on, off and perhaps neither."""
        return self.name != "TRITON_F32_DEFAULT"

    def for_people(self) -> str:
        """Both names."""
        return f"{self.name} (knobs.{self.knob})" if self.knob and self.knob != self.name else self.name


def _keyed(knob: str, name: str, default: bool | None = None, backends: tuple[Backend, ...] = BOTH) -> Setting:
    return Setting(name, knob, Treatment.KEYED, default, backends)


def _refused(knob: str, name: str, default: Any = None, backends: tuple[Backend, ...] = BOTH) -> Setting:
    return Setting(name or knob, knob, Treatment.REFUSED, default, backends)


_HIP, _CUDA = (Backend.HIP,), (Backend.CUDA,)

_KEYED = (
    _keyed("language.fp32_default", "TRITON_F32_DEFAULT"),
    _keyed("compilation.allow_non_constexpr_globals", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", default=False),
    _keyed("", "DISABLE_MMA_V3", False, _CUDA),
    _keyed("", "DISABLE_MMA_V5", False, _CUDA),
    _keyed("", "ALLOW_LHS_TMEM_LAYOUT_CONVERSION", False, _CUDA),
    _keyed("amd.use_buffer_ops", "AMDGCN_USE_BUFFER_OPS", True, _HIP),
    _keyed("amd.use_buffer_atomics", "AMDGCN_USE_BUFFER_ATOMICS", True, _HIP),
    _keyed("amd.buffer_ops_analyze_small_tensor_range", "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE", False, _HIP),
    _keyed("amd.scalarize_packed_fops", "AMDGCN_SCALARIZE_PACKED_FOPS", False, _HIP),
    _keyed("amd.use_block_pingpong", "TRITON_HIP_USE_BLOCK_PINGPONG", None, _HIP),
    _keyed("amd.use_in_thread_transpose", "TRITON_HIP_USE_IN_THREAD_TRANSPOSE", None, _HIP),
    _keyed("amd.use_async_copy", "TRITON_HIP_USE_ASYNC_COPY", None, _HIP),
    _keyed("amd.use_coexec_scheduler", "TRITON_HIP_USE_COEXEC_SCHEDULER", None, _HIP),
    _keyed("amd.use_expert_scheduling", "TRITON_HIP_USE_EXPERT_SCHEDULING", None, _HIP),
)

_SEEN_AS_OPTIONS = (
    Setting("TRITON_DEFAULT_FP_FUSION", "language.default_fp_fusion", Treatment.OPTION, default=True),
    Setting("TRITON_FORCE_DISABLE_FP_FUSION", "language.force_disable_fp_fusion", Treatment.OPTION, default=False),
    Setting("PTXAS_OPTIONS", "nvidia.ptxas_options", Treatment.OPTION, None, _CUDA),
    Setting("TRITON_DEBUG", "runtime.debug", Treatment.OPTION, default=False),
)

_PINNED = (Setting("TRITON_DISABLE_LINE_INFO", "compilation.disable_line_info", Treatment.PINNED, default=True),)

_FILES = (
    Setting("TRITON_PTXAS_PATH", "nvidia.ptxas", Treatment.FILE, None, _CUDA),
    Setting("TRITON_PTXAS_BLACKWELL_PATH", "nvidia.ptxas_blackwell", Treatment.FILE, None, _CUDA),
    Setting("TRITON_LIBDEVICE_PATH", "nvidia.libdevice_path", Treatment.FILE, None, _CUDA),
)

# Sanitizers, other code than the kernel's own, and what watches a compile and so needs one.
_REFUSED = (
    _refused("compilation.override", "TRITON_KERNEL_OVERRIDE", default=False),
    _refused("compilation.use_ir_loc", "USE_IR_LOC"),
    _refused("compilation.enable_asan", "TRITON_ENABLE_ASAN", default=False),
    _refused("compilation.dump_ir_extract_di_local_variables", "LLVM_EXTRACT_DI_LOCAL_VARIABLES", default=False),
    _refused("compilation.instrumentation_mode", "TRITON_INSTRUMENTATION_MODE", default=""),
    _refused("compilation.fpsan_homomorphic_casts", "TRITON_FPSAN_HOMOMORPHIC_CASTS", default=False),
    _refused("runtime.override_arch", "TRITON_OVERRIDE_ARCH"),
    _refused("runtime.add_stages_inspection_hook", ""),
    _refused("nvidia.mock_ptx_version", "TRITON_MOCK_PTX_VERSION", None, _CUDA),
    _refused("nvidia.disable_ptxas_opt", "DISABLE_PTXAS_OPT", False, _CUDA),
    _refused("nvidia.dump_nvptx", "NVPTX_ENABLE_DUMP", False, _CUDA),
    _refused("amd.codegen_path", "TRITON_AMD_CODEGEN_PATH", None, _HIP),
    _refused("amd.dump_amdgcn", "AMDGCN_ENABLE_DUMP", False, _HIP),
    _refused("amd.dump_mir", "TRITON_DUMP_MIR", None, _HIP),
    _refused("amd.swap_mir", "TRITON_SWAP_MIR", None, _HIP),
    _refused("amd.swap_mir_enable_misched", "TRITON_SWAP_MIR_ENABLE_MISCHED", False, _HIP),
    *(
        _refused("", name)
        for name in (
            "DISABLE_LLVM_OPT",
            "LLVM_ENABLE_TIMING",
            "LLVM_IR_ENABLE_DUMP",
            "LLVM_PASS_PLUGIN_PATH",
            "MLIR_DISABLE_MULTITHREADING",
            "MLIR_DUMP_PATH",
            "MLIR_ENABLE_DIAGNOSTICS",
            "MLIR_ENABLE_DUMP",
            "MLIR_ENABLE_TIMING",
            "TRITON_CONSAN_INIT_ALLOCATIONS",
            "TRITON_ENABLE_EXPERIMENTAL_CONSAN",
            "TRITON_ENABLE_LLVM_DEBUG",
            "TRITON_LLVM_DEBUG_ONLY",
            "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY",
            "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY",
            "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT",
            "TRITON_PLUGIN_PATHS",
            "TRITON_PLUGIN_VERSION_CHECK",
        )
    ),
)

_FREE_GROUPS: Mapping[str, str] = {
    "build": "cc cudacrt_path cudart_path impl",
    "redis": "key_format host port",
    "cache": "home_dir dump_dir override_dir dir manager_class remote_manager_class",
    "compilation": "dump_ir store_binary_only always_compile front_end_debugging listener",
    "autotuning": "cache print listener",
    "runtime": "interpret launch_enter_hook launch_exit_hook kernel_load_start_hook kernel_load_end_hook "
    "kernel_unload_hook jit_cache_hook jit_post_compile_hook",
    "nvidia": "cuobjdump nvdisasm dump_ptxas_log libcuda_path",
    "amd": "libhip_path",
    "proton": "disable cupti_lib_dir cupti_lib_blackwell_dir hsa_runtime_path hsa_runtime_library "
    "rocprofiler_sdk_include_path rocprofiler_sdk_lib_path rocprofiler_sdk_library roctracer_lib_path "
    "roctracer_library roctx_lib_path roctx_library profile_buffer_size profile_metric_buffer_size enable_nvtx "
    "enable_hw_trace",
}
"""Knobs of launchers, caches, profilers and messages, by group."""

_FREE = tuple(
    Setting(f"{group}.{name}", f"{group}.{name}", Treatment.FREE)
    for group, names in _FREE_GROUPS.items()
    for name in names.split()
)

SETTINGS = (*_KEYED, *_SEEN_AS_OPTIONS, *_PINNED, *_FILES, *_REFUSED, *_FREE)

_BY_NAME = {row.name: row for row in SETTINGS}
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,40}", re.ASCII)

BUILD_DEFAULTS: Mapping[str, Constant] = {"ptx_options": Constant("None")}
"""Compile options whose default Triton takes from the environment when it is imported, as a build has them."""


def named(name: str) -> Setting | None:
    """The setting with this name of a variable, or None."""
    return _BY_NAME.get(name)


def is_setting(option: str) -> bool:
    """Whether an option of a key is a setting: it then goes by the name of a variable."""
    row = _BY_NAME.get(option)
    return row is not None and row.treatment is Treatment.KEYED


def constant(row: Setting, value: object) -> Constant:
    """A keyed setting's value as it stands in a key.

    Raises:
        ValueError: A text that no key takes.
    """
    if value is None:
        return Constant("None")
    if row.is_switch:
        return Constant.of(bool(value))
    if not _WORD.fullmatch(str(value)):
        raise ValueError(f"{row.name}: expected one word")
    return Constant.of(str(value))


def from_variable(row: Setting, text: str | None) -> object:
    """What a variable's text means for a setting, as Triton reads it."""
    if not text:
        return row.default
    return text.lower() in ("1", "true", "on") if row.is_switch else text


def variable(value: Constant) -> str | None:
    """The text of a variable that means a value; None to leave the variable out."""
    held = value.value
    return None if held is None else str(int(held)) if isinstance(held, bool) else str(held)


def of_variables(variables: Mapping[str, str]) -> dict[str, Constant]:
    """The keyed settings of an environment that differ from the default."""
    found: dict[str, Constant] = {}
    for row in _KEYED:
        if row.name in variables:
            value = from_variable(row, variables[row.name])
            if value != row.default:
                found[row.name] = constant(row, value)
    return found


def differences(kernel: str, built: Mapping[str, Constant], here: Mapping[str, Constant]) -> Iterator[Problem]:
    """Every setting in which a process differs from what a variant was built with."""
    for name in sorted({*built, *here}):
        row = _BY_NAME[name]
        default = constant(row, row.default)
        before, now = built.get(name, default), here.get(name, default)
        if before != now:
            yield Problem(f"{kernel}: {row.for_people()}", f"{before}, as it was built", f"{now} here")
