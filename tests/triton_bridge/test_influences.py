"""The list of everything that decides code, held against the Triton that is installed: nothing may be missing from it."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from triton.backends import backends  # noqa: E402
from triton.backends.compiler import BaseBackend  # noqa: E402
from triton.compiler import compiler as triton_compiler  # noqa: E402
from triton.runtime import cache, jit  # noqa: E402

from aotkern.influences import INGREDIENTS, SETTINGS, Treatment, constant, from_variable, named, variable  # noqa: E402
from aotkern.target import Backend  # noqa: E402
from aotkern.triton_bridge.knobs import settings  # noqa: E402

ROOT = Path(__file__).parents[2]
KNOBS = {item.knob: item for item in SETTINGS if item.knob}
GROUPS = {name: group for name, group in vars(triton.knobs).items() if isinstance(group, triton.knobs.base_knobs)}

_INVALIDATING = """
import json, os, re, sys
from pathlib import Path
import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars

shared = next(Path(triton.__file__).parent.glob("_C/libtriton*.so")).read_bytes()
names = {found.decode() for found in re.findall(rb"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{3,60}(?=\\x00)", shared)}
for group in vars(knobs).values():
    if isinstance(group, knobs.base_knobs):
        names |= {descriptor.key for descriptor in group.knob_descriptors.values()}
for name in names - os.environ.keys():
    os.environ[name] = "1"
json.dump(sorted(get_cache_invalidating_env_vars()), sys.stdout)
"""


def test_every_variable_in_tritons_cache_key_is_listed_and_none_is_called_free():
    """Each upper-case text of its library, and each variable of a knob, is set: those that come back are in its key."""
    done = subprocess.run([sys.executable, "-c", _INVALIDATING], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) >= 31, "this way of asking does not work any more"
    assert {"TRITON_F32_DEFAULT", "AMDGCN_USE_BUFFER_OPS", "DISABLE_LLVM_OPT"} <= set(found)
    assert not [name for name in found if named(name) is None]
    assert not [name for name in found if named(name).treatment is Treatment.FREE]


def test_every_knob_is_listed():
    """Descriptors, and the plain attributes and hooks beside them."""
    found = set()
    for name, group in GROUPS.items():
        members = {
            member
            for member, value in vars(type(group)).items()
            if not member.startswith("_") and not inspect.isfunction(value) and not isinstance(value, property)
        }
        found |= {f"{name}.{member}" for member in members}
    assert len(found) >= 60
    assert found - KNOBS.keys() == set()


def test_knobs_and_variables_are_paired_as_in_triton():
    for name, group in GROUPS.items():
        for knob, descriptor in group.knob_descriptors.items():
            item = KNOBS[f"{name}.{knob}"]
            assert item.treatment is Treatment.FREE or item.name == descriptor.key


def test_defaults_are_tritons(monkeypatch):
    for item in SETTINGS:
        if item.name.isupper():
            monkeypatch.delenv(item.name, raising=False)
    triton.knobs.refresh_knobs() if hasattr(triton.knobs, "refresh_knobs") else None
    for item in SETTINGS:
        group, _, knob = item.knob.partition(".")
        descriptor = vars(type(GROUPS[group])).get(knob) if group else None
        if item.treatment in (Treatment.KEYED, Treatment.REFUSED, Treatment.OPTION) and hasattr(descriptor, "get"):
            # `None` leaves a choice to the back end; versions that have no such choice have the value itself.
            assert descriptor.get() in (item.default, False if item.default is None else item.default), item.name


def test_every_listed_knob_exists_in_some_tested_version():
    """A row that no version has would be a mistake in writing; only later versions have some."""
    missing = {name for name in KNOBS if name.partition(".")[0] not in GROUPS}
    assert not missing


# How Triton makes its key, function by function: digests of the texts that were read when the list was made. A version
# with another text must be read again, and what it adds be listed, before its digest is put here.
READ = {
    name: frozenset(digests.split())
    for name, digests in json.loads((Path(__file__).parent / "read_in_triton.json").read_text("utf-8")).items()
}


def texts() -> dict[str, str]:
    """Everything in Triton that makes, or feeds, its cache key."""
    amd, nvidia = sys.modules[backends["amd"].compiler.__module__], sys.modules[backends["nvidia"].compiler.__module__]
    functions = {
        "get_cache_key": cache.get_cache_key,
        "triton_key": cache.triton_key,
        "ASTSource.__init__": triton_compiler.ASTSource.__init__,
        "ASTSource.hash": triton_compiler.ASTSource.hash,
        "compile": triton_compiler.compile,
        "HIPOptions": amd.HIPOptions,
        "HIPBackend.hash": amd.HIPBackend.hash,
        "HIPBackend.parse_options": amd.HIPBackend.parse_options,
        "HIPBackend.parse_attr": amd.HIPBackend.parse_attr,
        "HIPBackend.get_tensor_specialization": amd.HIPBackend.get_tensor_specialization,
        "CUDAOptions": nvidia.CUDAOptions,
        "CUDABackend.hash": nvidia.CUDABackend.hash,
        "CUDABackend.parse_options": nvidia.CUDABackend.parse_options,
        "BaseBackend.parse_attr": BaseBackend.parse_attr,
        "BaseBackend.get_int_specialization": BaseBackend.get_int_specialization,
        "BaseBackend.get_tensor_specialization": BaseBackend.get_tensor_specialization,
        "JITCallable.cache_key": jit.JITCallable.cache_key.fget,
        "JITCallable.get_capture_scope": jit.JITCallable.get_capture_scope,
        "DependenciesFinder.record_reference": jit.DependenciesFinder.record_reference,
        "DependenciesFinder._update_hash": jit.DependenciesFinder._update_hash,
        "compute_cache_key": jit.compute_cache_key,
        "JITFunction.run": jit.JITFunction.run,
        "JITFunction._pack_args": jit.JITFunction._pack_args,
        "KernelParam": jit.KernelParam,
        "create_function_from_signature": jit.create_function_from_signature,
    }
    return {name: inspect.getsource(function) for name, function in functions.items()}


def digest(text: str) -> str:
    """Of the text without comments' and blank lines' layout: runs of white space count as one."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", sorted(READ))
def test_triton_makes_its_key_as_it_did_when_the_list_was_made(name):
    assert digest(texts()[name]) in READ[name], f"{name} of Triton {triton.__version__} was not read: see INGREDIENTS"


def test_all_of_it_was_read():
    assert texts().keys() == READ.keys()


def test_the_letters_of_attributes_are_those_that_a_key_has():
    """Every letter is tried: what it means is an attribute with a value that `specialised` reads back."""
    from aotkern.triton_bridge.specialised import _READ

    for kind, name in ((Backend.HIP, "amd"), (Backend.CUDA, "nvidia")):
        letters = "".join(map(chr, range(33, 127)))
        found = {(attribute, value) for attribute, value in backends[name].compiler.parse_attr(letters)}
        assert found == _READ[kind]


def test_a_keyed_value_survives_the_way_through_a_key_and_a_variable():
    for item in SETTINGS:
        if item.treatment is Treatment.KEYED:
            for value in (True, False) if item.is_switch else ("ieee", "tf32x3"):
                text = variable(constant(item, value))
                assert from_variable(item, text) == value


def test_names_are_unique():
    assert len({item.name for item in SETTINGS}) == len(SETTINGS)
    assert len(KNOBS) == len([item for item in SETTINGS if item.knob])


@pytest.mark.parametrize(
    "item", [row for row in SETTINGS if row.treatment is Treatment.REFUSED], ids=lambda row: row.name
)
def test_a_setting_with_which_nothing_is_built_is_refused_by_name(item, monkeypatch):
    from aotkern.errors import InputError

    group, _, knob = item.knob.partition(".")
    if item.name.isupper() and not (knob and not hasattr(vars(type(GROUPS[group])).get(knob), "get")):
        monkeypatch.setenv(item.name, "1")
    else:
        if not hasattr(GROUPS[group], knob):
            pytest.skip(f"Triton {triton.__version__} has no {item.knob}")
        monkeypatch.setattr(GROUPS[group], knob, "fpsan")
    if knob and not hasattr(GROUPS[group], knob):
        pytest.skip(f"Triton {triton.__version__} has no {item.knob}")
    if not knob and item.name not in triton._C.libtriton.get_cache_invalidating_env_vars():
        pytest.skip(f"Triton {triton.__version__} does not read {item.name}")
    for backend in item.backends:
        with pytest.raises(InputError, match=re.escape(item.name)):
            settings(backend, "k")


def test_the_decision_names_every_ingredient_and_treatment():
    page = (ROOT / "docs/adr/the-key-says-what-the-compiler-sees.md").read_text("utf-8")
    for part in INGREDIENTS:
        assert f"| {part.name} | {part.triton} | {part.key} | {part.built} | {part.served} | {part.loaded} |" in page
    for treatment in Treatment:
        names = sorted(item.name for item in SETTINGS if item.treatment is treatment)
        listed = names if treatment is not Treatment.FREE else sorted({name.partition(".")[0] for name in names})
        line = next(row for row in page.splitlines() if row.startswith(f"| {treatment.value} |"))
        assert [name for name in listed if f"`{name}`" not in line] == []
