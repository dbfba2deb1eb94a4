"""The revision and the bundles that a record names."""

import subprocess

import making
import pytest

from aotkern.bench import Row, Table, observed
from aotkern.bench.observed import git_revision
from aotkern.bundle import encode
from aotkern.digest import Digest


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", *identity, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    for name in ("code.py", "README.md", "docs/page.md", "audits/benchmarks/size.json", "audits/policy.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_the_revision_is_what_is_checked_out(repository):
    assert git_revision(repository) == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["code.py", "audits/policy.toml"])
def test_changed_code_is_said(repository, name):
    (repository / name).write_text("2")
    assert git_revision(repository) == git(repository, "rev-parse", "HEAD") + "+changes"


@pytest.mark.parametrize("name", ["README.md", "docs/page.md", "audits/benchmarks/size.json", "new.txt"])
def test_results_and_pages_are_no_code(repository, name):
    (repository / name).write_text("2")
    assert git_revision(repository) == git(repository, "rev-parse", "HEAD")


def test_outside_of_git_there_is_none(tmp_path):
    assert git_revision(tmp_path) == ""


def test_a_record_names_its_bundles_and_the_revision_it_was_told(tmp_path):
    manifest = making.hand_made()
    path = tmp_path / "some.gfx942.aotk"
    path.write_bytes(encode(manifest, {Digest.of(seed): seed for seed in (b"first", b"second")}, {}))
    table = Table("t", ("a", "b"), (Row("r", ("word",)),))
    run = observed("one", "command", revision="1" * 40).run((table,), bundles=(path,))
    assert run.revision == "1" * 40
    assert run.bundles == (("some.gfx942.aotk", str(manifest.digest)),)
