import pytest
from making import repository, written

from aotkern.build.origins import Origins
from aotkern.build.registry import Source
from aotkern.build.revision import copies, describe, export, located
from aotkern.digest import Digest
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
    found = export([source], "HEAD", into)
    (then,) = found.sources
    assert found.commit == commit
    assert then == Source("kernel", into / "tree" / "deep" / "package" / "kernel.py")
    assert [(row.tree, row.export) for row in found.moved] == [(str(tmp_path / "project"), str(into / "tree"))]
    assert then.path.read_text() == "VALUE = 1\n"
    assert (then.path.parent / "__init__.py").is_file()
    assert source.path.read_text() == "VALUE = 2\n"


def test_a_folder_is_a_source_too(project, tmp_path):
    source, _, _ = project
    into = tmp_path / "then"
    into.mkdir()
    (then,) = export([Source("package", source.path.parent)], "HEAD", into).sources
    assert sorted(path.name for path in then.path.iterdir()) == ["__init__.py", "kernel.py"]


def test_a_source_behind_a_link_is_found(project, tmp_path):
    _, commit, _ = project
    (tmp_path / "link").symlink_to(tmp_path / "project")
    into = tmp_path / "then"
    into.mkdir()
    found = export([Source("kernel", tmp_path / "link" / "deep" / "package" / "kernel.py")], commit[:9], into)
    assert (found.sources[0].path.read_text(), found.commit) == ("VALUE = 1\n", commit)


def test_what_an_archive_would_leave_out_and_links_are_exported(project, tmp_path):
    source, _, git = project
    top = tmp_path / "project"
    (top / ".gitattributes").write_text("deep export-ignore\n")
    (top / "link").symlink_to("/nowhere")
    git("add", "-A")
    git("commit", "-qm", "attributes")
    into = tmp_path / "then"
    into.mkdir()
    before = git("status", "--porcelain")
    assert export([source], "HEAD", into).sources[0].path.is_file()
    assert (into / "tree" / "link").readlink().as_posix() == "/nowhere"
    assert git("status", "--porcelain") == before


def test_sources_of_two_repositories_have_no_revision_in_common(project, tmp_path):
    other = repository(tmp_path / "other")
    source = written(tmp_path / "other", "VALUE = 1\n", "kernel.py")
    other("add", "-A")
    other("commit", "-qm", "other")
    with pytest.raises(InputError, match="KERNELS: expected kernels of one git repository"):
        export([project[0], source], "HEAD", tmp_path)


@pytest.mark.parametrize("revision", ["no-such-branch", "--help", "HEAD~5", "HEAD:deep"])
def test_an_unknown_revision_is_refused_by_name(project, tmp_path, revision):
    with pytest.raises(InputError) as refused:
        export([project[0]], revision, tmp_path)
    assert str(refused.value).startswith("git rev-parse --verify in ")
    assert "expected success, found " in str(refused.value)


def test_outside_of_a_repository_there_is_no_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    source = written(tmp_path / "loose", "VALUE = 1\n")
    with pytest.raises(InputError, match="not a git repository"):
        export([source], "HEAD", tmp_path)
    assert describe(source, Origins()) == {}


def test_a_source_that_did_not_exist_then_is_refused(project, tmp_path):
    new = written(project[0].path.parent, "VALUE = 3\n", "new.py")
    into = tmp_path / "then"
    into.mkdir()
    with pytest.raises(
        InputError, match=r"deep/package/new\.py at HEAD: expected the kernel source, found nothing there"
    ):
        export([new], "HEAD", into)


def test_a_module_name_has_no_place(tmp_path):
    with pytest.raises(InputError, match=r"some\.module: expected a kernel file or folder, or a module"):
        located(Source("some.module"))
    assert describe(Source("some.module"), Origins()) == {}


def test_a_revision_is_described_with_its_state(project):
    source, commit, git = project
    read = Origins({str(source.path): Digest.of(source.path.read_bytes())})
    name = "deep/package/kernel.py"
    assert describe(source, read) == {"revision": commit, "sources": "modified", "modified": name}
    git("commit", "-qam", "second")
    assert describe(source, read) == {"revision": git("rev-parse", "HEAD"), "sources": "as committed"}


def test_what_changed_after_it_was_read_is_not_as_committed(project):
    source, _, git = project
    read = Origins({str(source.path): Digest.of(source.path.read_bytes())})
    source.path.write_text("VALUE = 3\n")
    git("commit", "-qam", "third")
    assert describe(source, read)["sources"] == "modified"


@pytest.mark.parametrize("followed", [True, False])
def test_what_an_installation_leaves_in_the_work_tree_does_not_stand_for_the_source(project, tmp_path, followed):
    source, _, git = project
    installed = written(tmp_path / "site-packages" / "package", "VALUE = 1\n", "kernel.py").path
    written(tmp_path / "project" / "build" / "lib" / "package", "VALUE = 1\n", "kernel.py")
    if not followed:  # a new source that nobody has added yet, and an older copy of it
        git("rm", "-q", "--cached", "deep/package/kernel.py")
    read = Origins(modules={"package.kernel": str(installed)})
    said = f"package.kernel ({installed}) came from outside the work tree"
    assert copies([source], read) == said
    installed.write_text(source.path.read_text())
    assert copies([source], read) == ("" if followed else said)


def test_a_repository_inside_of_this_one_is_not_as_committed(project, tmp_path):
    source, _, git = project
    git("commit", "-qam", "second")
    other = repository(tmp_path / "project" / "vendor")
    inner = written(tmp_path / "project" / "vendor", "VALUE = 1\n", "kernel.py").path
    other("add", "-A")
    other("commit", "-qm", "other")
    read = Origins({str(path): Digest.of(path.read_bytes()) for path in (source.path, inner)})
    assert describe(source, read)["modified"] == "vendor"


def test_without_git_the_tool_is_named(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="git is needed for a baseline revision"):
        export([project[0]], "HEAD", tmp_path)
    assert describe(project[0], Origins()) == {}
