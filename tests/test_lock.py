"""Lock files: what they refuse, and how they are read back."""

from __future__ import annotations

import json

import pytest
from making import GFX942, GFX950, packed

from aotkern.bundle import Bundle
from aotkern.errors import InputError, IntegrityError
from aotkern.lock import Lock


@pytest.fixture
def bundles(sample) -> tuple[Bundle, ...]:
    return tuple(sample.bundle(target) for target in (GFX942, GFX950))


def test_a_lock_reads_back_and_accepts_what_it_locked(bundles, tmp_path):
    lock = Lock.of(bundles)
    lock.write(tmp_path / "lock")
    assert Lock.read(tmp_path / "lock") == lock
    lock.check(bundles)


def test_other_bytes_under_a_locked_name_are_refused(sample, bundles):
    other = Bundle.decode(packed(sample.build(GFX942), {"built": "again"}), "elsewhere/scale.gfx942.aotk")
    (problem,) = Lock.of(bundles).problems(other)
    assert problem.expected == f"the locked digest {bundles[0].digest}"
    assert problem.found == f"{other.digest} (with the same manifest)"


def test_a_bundle_that_is_not_locked_is_refused(bundles):
    with pytest.raises(IntegrityError, match=r"scale\.gfx950\.aotk, which is not in it"):
        Lock.of(bundles[:1]).check(bundles)


def test_two_bundles_of_one_name_cannot_be_locked(sample, bundles):
    other = Bundle.decode(packed(sample.build(GFX950)), bundles[0].where)
    with pytest.raises(InputError, match=r"a second scale\.gfx942\.aotk"):
        Lock.of((bundles[0], other))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda value: value.update(version=2), "aotkern.lock version 2"),
        (lambda value: value["bundles"]["scale.gfx942.aotk"].pop("target"), "digest, manifest"),
        (lambda value: value["bundles"]["scale.gfx942.aotk"].update(digest="sha256:0"), "sha256:0"),
        (lambda value: value.update(more=1), "more"),
    ],
)
def test_a_damaged_lock_is_refused(bundles, tmp_path, change, found):
    path = tmp_path / "lock"
    Lock.of(bundles).write(path)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(IntegrityError, match=found):
        Lock.read(path)


def test_a_lock_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="a lock file that can be read"):
        Lock.read(tmp_path / "none")
