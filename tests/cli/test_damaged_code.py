"""Code that LLVM's decoder dies of, in a bundle whose digests are right: the audits end with verdicts and reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bundles import opened
from click.testing import CliRunner

from aotkern import codeobject
from aotkern.bundle import encode
from aotkern.cli.commands import aotkern
from aotkern.codeobject import elf
from aotkern.digest import Digest
from aotkern.manifest import ObjectEntry

KERNELS = """
import numpy as np
import triton
import triton.language as tl

from aotkern.audit.cases import Case, Exact
from aotkern.spec import Kernel, Pointer, Space


@triton.jit
def twice(x, out):
    at = tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at) * 2)


ARGUMENTS = {"x": Pointer("i32"), "out": Pointer("i32")}
KERNELS = (Kernel(twice, Space(targets=("gfx942",), arguments=ARGUMENTS, options={"num_warps": 1})),)


def cases(key, seed):
    x = np.arange(64, dtype=np.int32)
    yield Case("double", (1,), {"x": x, "out": np.zeros(64, np.int32)}, {"out": Exact(x * 2)})


CASES = {"twice": cases}
"""
DEADLY = bytes.fromhex("f9aeaa05657760c2")


def damaged(data: bytes) -> bytes:
    """The bundle with `DEADLY` at both beginnings of its first kernel, and digests that fit."""
    bundle = opened(data)
    old = bundle.manifest.objects[0]
    code = bytearray(bundle.object(old.digest))
    at = elf.parse(bytes(code), "").section(".text").offset
    for place in (at, at + 256):  # with and without preloaded arguments
        code[place : place + 8] = DEADLY
    new = ObjectEntry(Digest.of(bytes(code)), len(code), codeobject.read(bytes(code), "").to_json())
    variants = tuple(
        replace(one, object=new.digest) if one.object == old.digest else one for one in bundle.manifest.variants
    )
    manifest = replace(bundle.manifest, objects=(new, *bundle.manifest.objects[1:]), variants=variants)
    images = {one.digest: bytes(code) if one is new else bundle.object(one.digest) for one in manifest.objects}
    return encode(manifest, images, {})


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(aotkern, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTKERN_CACHE", str(tmp_path / "store"))
    (tmp_path / "k.py").write_text(KERNELS, "utf-8")
    assert run("build", "k.py", "--jobs", "1", "-o", "out")[0] == 0
    (tmp_path / "bad.gfx942.aotk").write_bytes(damaged((tmp_path / "out/k.gfx942.aotk").read_bytes()))
    return tmp_path


def test_audits_of_code_that_kills_the_decoder_end_with_reports(folder: Path) -> None:
    code, text = run(
        "audit", "numerics", "bad.gfx942.aotk", "--cases", "k.py", "--report", "n.xml", "--report", "n.json"
    )
    assert code == 1, text
    assert "no instruction of gfx942" in text
    assert "numerics: findings" in text
    assert int(ET.fromstring((folder / "n.xml").read_text()).get("failures", "0")) >= 1
    assert json.loads((folder / "n.json").read_text())["verdict"] == "findings"
    against = ("audit", "identity", "-t", "gfx942", "--baseline")
    code, text = run(*against, "bad.gfx942.aotk", "--bundle", "out/k.gfx942.aotk", "--report", "i.json")
    assert code == 1, text
    assert "sections: .text; first_difference: .text at byte 0x0" in text
    assert json.loads((folder / "i.json").read_text())["verdict"] == "findings"
    code, text = run(*against, "out/k.gfx942.aotk", "--bundle", "bad.gfx942.aotk")
    assert (code, "identity: findings" in text) == (1, True), text
