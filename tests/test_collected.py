"""Every file of tests is run: a folder that is left out in silence would be tests that cannot fail."""

from __future__ import annotations

import fnmatch
import itertools
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    patterns = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in TESTS.rglob("test_*.py")}
    parts = {part for folder in folders for part in folder.relative_to(TESTS).parts}
    left_out = sorted(part for part in parts for pattern in patterns if fnmatch.fnmatch(part, pattern))
    assert "build" in parts
    assert not left_out


def test_each_file_has_a_name_of_its_own() -> None:
    """Modules of tests are imported by their bare names."""
    names = sorted(path.name for path in TESTS.rglob("test_*.py"))
    assert not [name for name, other in itertools.pairwise(names) if name == other]
