import pytest
from making import repository, written

from aotkern.build.registry import Source
from aotkern.build.revision import describe, export, located
from aotkern.errors import InputError, MissingToolError


@pytest.fixture
def project(tmp_path):
    """A repository with a kernel file in a package, committed once and then edited: (source, commit, git)."""
    git = repository(tmp_path / "project")
    source = written(tmp_path / "project" / "deep" / "package", "VALUE = 1\n", "kernel.py")
    written(source.path.parent, "", "__init__.py")
    git("add", "-A")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    source.path.write_text("VALUE = 2\n")
    return source, commit, git


def test_a_source_comes_back_as_it_was_then(project, tmp_path):
    source, commit, _ = project
    into = tmp_path / "then"
    into.mkdir()
    then, found = export(source, "HEAD", into)
    assert found == commit
    assert then == Source("kernel", into / "deep" / "package" / "kernel.py")
    assert then.path.read_text() == "VALUE = 1\n"
    assert (then.path.parent / "__init__.py").is_file()
    assert source.path.read_text() == "VALUE = 2\n"


def test_a_folder_is_a_source_too(project, tmp_path):
    source, _, _ = project
    into = tmp_path / "then"
    into.mkdir()
    then, _ = export(Source("package", source.path.parent), "HEAD", into)
    assert sorted(path.name for path in then.path.iterdir()) == ["__init__.py", "kernel.py"]


def test_a_source_behind_a_link_is_found(project, tmp_path):
    _, commit, _ = project
    (tmp_path / "link").symlink_to(tmp_path / "project")
    into = tmp_path / "then"
    into.mkdir()
    then, found = export(Source("kernel", tmp_path / "link" / "deep" / "package" / "kernel.py"), commit[:9], into)
    assert (then.path.read_text(), found) == ("VALUE = 1\n", commit)


@pytest.mark.parametrize("revision", ["no-such-branch", "--help", "HEAD~5", "HEAD:deep"])
def test_an_unknown_revision_is_refused_by_name(project, tmp_path, revision):
    with pytest.raises(InputError) as refused:
        export(project[0], revision, tmp_path)
    assert str(refused.value).startswith("git rev-parse --verify in ")
    assert "expected success, found " in str(refused.value)


def test_outside_of_a_repository_there_is_no_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    source = written(tmp_path / "loose", "VALUE = 1\n")
    with pytest.raises(InputError, match="not a git repository"):
        export(source, "HEAD", tmp_path)
    assert describe(source) == {}


def test_a_source_that_did_not_exist_then_is_refused(project, tmp_path):
    new = written(project[0].path.parent, "VALUE = 3\n", "new.py")
    into = tmp_path / "then"
    into.mkdir()
    with pytest.raises(
        InputError, match=r"deep/package/new\.py at HEAD: expected the kernel source, found nothing there"
    ):
        export(new, "HEAD", into)


def test_a_module_name_has_no_place(tmp_path):
    with pytest.raises(InputError, match=r"some\.module: expected a kernel file or folder, because"):
        located(Source("some.module"))
    assert describe(Source("some.module")) == {}


def test_a_revision_is_described_with_its_state(project):
    source, commit, git = project
    assert describe(source) == {"revision": commit, "sources": "modified"}
    git("commit", "-qam", "second")
    assert describe(source) == {"revision": git("rev-parse", "HEAD"), "sources": "as committed"}


def test_without_git_the_tool_is_named(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="git is needed for a baseline revision"):
        export(project[0], "HEAD", tmp_path)
    assert describe(project[0]) == {}
