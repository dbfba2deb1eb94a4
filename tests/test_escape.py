"""What came from elsewhere never steers a terminal, a log or a report."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.bundle import encode
from aotkern.errors import InputError, IntegrityError, Problem
from aotkern.escape import is_plain, visible, visible_text
from aotkern.manifest import Manifest
from aotkern.report import formats
from aotkern.target import Target

HOSTILE = "a\x1b[2J\x1b[1;1Hb\r\x07\x9b31m\u202ec\u2066\u200b\u2028\U000e0041"


def steers(text: str) -> list[str]:
    """The characters of a text that a terminal or a log takes as more than a character."""
    kinds = {"Cc", "Zl", "Zp", "Cs"}
    return [c for c in text if unicodedata.category(c) in kinds or c in "\u202e\u2066\u200b\U000e0041"]


@given(st.text())
def test_nothing_that_steers_is_left(text: str) -> None:
    assert not steers(visible(text))
    assert not [c for c in steers(visible_text(text)) if c not in "\n\t"]
    assert is_plain(visible(text))
    assert visible(visible(text)) == visible(text)
    if is_plain(text):
        assert visible(text) == text


@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_json_document_stays_the_same_document(value: dict[str, str]) -> None:
    shown = visible_text(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not [c for c in steers(shown) if c != "\n"]


def test_a_line_feed_makes_no_line_of_its_own_in_a_problem() -> None:
    problem = Problem("f\n::error::made up", "x", HOSTILE)
    assert "\n" not in str(problem)
    assert not steers(str(problem))
    assert str(InputError([problem, problem])).count("\n") == 1


@pytest.mark.parametrize("suffix", sorted(formats.FORMATS))
def test_reports_hold_nothing_that_steers(suffix: str) -> None:
    finding = Finding("identity", f"k{HOSTILE}", "different", f"[click](http://evil) {HOSTILE}", {})
    step = StepResult("identity", HOSTILE, Verdict.FINDINGS, 0.1, HOSTILE, (finding,))
    report = formats.FORMATS[suffix](GateReport("policy.toml", (step,)))
    assert not [c for c in steers(report) if c not in "\n\t"], suffix
    if suffix == ".sarif":
        text = json.loads(report)["runs"][0]["results"][0]["message"]["text"]
        assert "\\[click\\](http://evil)" in text


@pytest.mark.parametrize("place", ["toolchain", "environment", "provenance"])
def test_a_bundle_with_such_names_is_refused(tmp_path: Path, place: str) -> None:
    words = {"toolchain": {"triton": "x"}, "environment": {}, "provenance": {}}
    for steering in ({"triton": "3\n::error::made up"}, {"tri\x1b[2Jton": "3"}, {"triton": "\u202e3"}):
        mixed = {**words, place: steering}
        manifest = Manifest.make(Target.parse("gfx942"), mixed["toolchain"], mixed["environment"], (), {}, ())
        path = tmp_path / "x.gfx942.aotk"
        path.write_bytes(encode(manifest, {}, mixed["provenance"]))
        command = [sys.executable, "-m", "aotkern", "verify", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout
        assert "texts without control characters" in done.stdout
        assert not [c for c in steers(done.stdout) if c != "\n"]
        assert "\n::error::" not in done.stdout


def test_a_file_name_makes_no_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x\n::error::made up.gfx942.aotk"
    manifest = Manifest.make(Target.parse("gfx942"), {"triton": "x"}, {}, (), {}, ())
    path.write_bytes(encode(manifest, {}, {}))
    for name in (path, path.with_name("none\x1b[2J\n::error::")):
        command = [sys.executable, "-m", "aotkern", "verify", str(name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "\n::error::" not in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr


def test_annotations_of_a_registry_are_refused() -> None:
    from aotkern.distribution.artifact import Index

    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": "sha256:" + "0" * 64,
        "size": 1,
        "annotations": {"dev.aotkern.name": "\x1b[2J\x1b[1;1Hpulled: signed by release"},
    }
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    }
    with pytest.raises(IntegrityError, match="without control characters") as caught:
        Index.parse(json.dumps(document).encode(), "registry")
    assert "\x1b" not in str(caught.value)
