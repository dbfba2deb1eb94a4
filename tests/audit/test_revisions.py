"""A baseline is the revision's code, whatever is installed and however its modules are found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from making import Answer, repository

pytest.importorskip("triton")

COMMON = """\
import triton


@triton.jit
def factor(v):
    return v * 2.0
"""

KERNEL = """\
import triton
import triton.language as tl

from aotkern.spec import Kernel, Pointer, Space

{imports}


@triton.jit
def scale(x):
    tl.store(x, factor(tl.load(x)))


KERNELS = (Kernel(scale, Space(("gfx942",), {{"x": Pointer("fp32", "any")}}, options={{"num_warps": 1}})),)
"""

IMPORT = "from pkgy.common import factor"

HOOK = """\
import importlib.util
import sys

MAPPING = {mapping!r}


class Finder:  # as setuptools makes them for editable installations
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        for package, place in MAPPING.items():
            if name == package:
                return importlib.util.spec_from_file_location(name, place + "/__init__.py")
        return None


sys.meta_path.append(Finder)
"""


class Project:
    """A repository and a Python of its own, in which packages can be installed in any way."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.git = repository(self.root)
        self.venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        (self.site,) = self.venv.glob("lib/python*/site-packages")
        self.pth("others", *(path for path in sys.path if "site-packages" in path), str(Path(__file__).parents[2]))
        self.path = ""

    def pth(self, name: str, *lines: str) -> None:
        (self.site / f"{name}.pth").write_text("".join(f"{line}\n" for line in lines))

    def write(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "a commit")

    def run(self, *arguments: object, **more: str) -> Answer:
        done = subprocess.run(
            [self.venv / "bin" / "python", "-m", "aotkern", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root.parent,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": self.path, **more},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def identity(self, *sources: object) -> Answer:
        return self.run("audit", "identity", *sources, "-t", "gfx942", "-j1", "--baseline-ref", "HEAD")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def on_the_path(project):
    project.write("pkgy/__init__.py")
    project.path = str(project.root)
    return "pkgy/common.py", "aot/decl.py", IMPORT


def behind_a_link(project):
    project.write("pkgy/__init__.py")
    (project.root.parent / "link").symlink_to(project.root)
    project.path = str(project.root.parent / "link")
    return "pkgy/common.py", "aot/decl.py", IMPORT


def editable(project):
    project.write("pkgy/__init__.py")
    project.pth("pkgy", str(project.root))
    return "pkgy/common.py", "aot/decl.py", IMPORT


def in_a_src_folder(project):
    project.write("src/pkgy/__init__.py")
    project.pth("pkgy", str(project.root / "src"))
    return "src/pkgy/common.py", "decl.py", IMPORT


def by_an_import_hook(project):
    project.write("lib/pkgy_of_today/__init__.py")
    mapping = {"pkgy": str(project.root / "lib" / "pkgy_of_today")}
    (project.site / "__editable___pkgy_finder.py").write_text(HOOK.format(mapping=mapping))
    project.pth("pkgy", "import __editable___pkgy_finder")
    return "lib/pkgy_of_today/common.py", "aot/decl.py", IMPORT


def as_a_namespace(project):
    project.path = str(project.root)
    return "pkgy/common.py", "aot/decl.py", IMPORT


def inside_the_package(project):
    project.write("pkgy/__init__.py")
    project.path = str(project.root)
    return "pkgy/common.py", "pkgy/decl.py", "from .common import factor"


def lazily(project):
    project.write("pkgy/__init__.py")
    project.path = str(project.root)
    late = "\n\n@triton.constexpr_function\ndef late():\n    import pkgy.number\n\n    return pkgy.number.VALUE\n"
    late += "\n\n@triton.jit\ndef factor(v):\n    return v * late()\n"
    return "pkgy/number.py", "aot/decl.py", late


def by_editing_the_path(project):
    project.write("tools/pkgy/__init__.py")
    edit = "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).parents[1] / 'tools'))\n"
    return "tools/pkgy/common.py", "aot/decl.py", f"{edit}{IMPORT}"


def from_another_package_of_the_repository(project):
    project.write("one/src/pkgy/__init__.py")
    project.write("two/mykernels/__init__.py")
    project.pth("pkgy", str(project.root / "one" / "src"), str(project.root / "two"))
    return "one/src/pkgy/common.py", "two/mykernels/decl.py", IMPORT


LAYOUTS = (
    on_the_path,
    behind_a_link,
    editable,
    in_a_src_folder,
    by_an_import_hook,
    as_a_namespace,
    inside_the_package,
    lazily,
    by_editing_the_path,
    from_another_package_of_the_repository,
)


def laid_out(project, layout):
    """Write and commit a layout; the module that the kernel gets its factor from, and the declaration."""
    common, declaration, imports = layout(project)
    text = "VALUE = 2.0\n" if common.endswith("number.py") else COMMON
    module = project.write(common, text)
    declared = project.write(declaration, KERNEL.format(imports=imports))
    project.commit()
    return module, declared


def change(module):
    module.write_text(module.read_text().replace("2.0", "3.0"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_of_an_imported_module_is_found(project, layout):
    module, declared = laid_out(project, layout)
    change(module)
    answer = project.identity(declared)
    assert answer.code == 1, answer
    assert "1 different" in answer.out


@pytest.mark.parametrize("layout", [editable, by_an_import_hook, as_a_namespace, lazily])
def test_what_did_not_change_is_clean(project, layout):
    module, declared = laid_out(project, layout)
    module.write_text(f"{module.read_text()}\n# a comment\n")
    answer = project.identity(declared)
    assert answer.code == 0, answer
    assert "1 identical" in answer.out


def test_a_module_that_was_moved_since_is_found_where_it_was(project):
    module, declared = laid_out(project, editable)
    module.rename(module.with_name("factors.py"))
    declared.write_text(declared.read_text().replace("pkgy.common", "pkgy.factors"))
    answer = project.identity(declared)
    assert (answer.code, "1 identical" in answer.out) == (0, True), answer


def test_a_module_that_is_new_since_is_not_seen_by_the_revision(project):
    optional = "try:\n    from pkgy.fast import factor\nexcept ImportError:\n    from pkgy.common import factor\n"
    project.write("pkgy/__init__.py")
    project.write("pkgy/common.py", COMMON)
    declared = project.write("aot/decl.py", KERNEL.format(imports=optional))
    project.commit()
    project.pth("pkgy", str(project.root))
    project.write("pkgy/fast.py", COMMON.replace("2.0", "4.0"))
    answer = project.identity(declared)
    assert (answer.code, "1 different" in answer.out) == (1, True), answer


def test_a_module_by_name_has_a_revision_too(project):
    module, declared = laid_out(project, from_another_package_of_the_repository)
    change(module)
    answer = project.identity("mykernels")
    assert (answer.code, "1 different" in answer.out) == (1, True), answer


def test_a_submodule_of_git_is_part_of_the_revision(project, tmp_path):
    other = repository(tmp_path / "other")
    (tmp_path / "other" / "pkgy").mkdir()
    (tmp_path / "other" / "pkgy" / "__init__.py").write_text("")
    (tmp_path / "other" / "pkgy" / "common.py").write_text(COMMON)
    other("add", "-A")
    other("commit", "-qm", "other")
    project.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "other"), "third")
    declared = project.write("aot/decl.py", KERNEL.format(imports=IMPORT))
    project.commit()
    project.path = str(project.root / "third")
    change(project.root / "third" / "pkgy" / "common.py")
    answer = project.identity(declared)
    assert (answer.code, "1 different" in answer.out) == (1, True), answer


# Could not tell.


def refused(answer, *names):
    assert answer.code == 2, answer
    for name in names:
        assert name in answer.out + answer.err
    assert "clean" not in answer.out


def test_an_installed_copy_answers_for_neither_side(project):
    module, declared = laid_out(project, on_the_path)
    project.path = ""
    shutil.copytree(project.root / "pkgy", project.site / "pkgy")
    change(module)
    refused(project.identity(declared), "pkgy.common (", "came from outside the work tree")


def test_an_installed_copy_of_other_code_is_not_the_revision(project):
    module, declared = laid_out(project, on_the_path)
    project.path = ""
    shutil.copytree(project.root / "pkgy", project.site / "pkgy")
    change(project.site / "pkgy" / "common.py")
    refused(project.identity(declared), "pkgy.common (", "came from outside the revision")


TRICKS = {
    "a file by its path": """\
        import importlib.util

        spec = importlib.util.spec_from_file_location("trick", {path!r})
        trick = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(trick)
        factor = trick.factor
    """,
    "a text that is read": """\
        import json
        from pathlib import Path

        NUMBER: tl.constexpr = tl.constexpr(json.loads(Path({data!r}).read_text()))

        @triton.jit
        def factor(v):
            return v * NUMBER
    """,
}


@pytest.mark.parametrize("trick", TRICKS)
def test_what_is_read_past_the_import_system_is_named(project, trick):
    module = project.write("pkgy/common.py", COMMON)
    data = project.write("pkgy/number.json", "2.0")
    imports = textwrap.dedent(TRICKS[trick]).format(path=str(module), data=str(data))
    declared = project.write("aot/decl.py", KERNEL.format(imports=imports))
    project.commit()
    change(module)
    change(data)
    refused(project.identity(declared), "came from outside the revision", "pkgy")


def test_what_git_ignores_is_of_no_revision(project):
    project.write(".gitignore", "common.py\n")
    module, declared = laid_out(project, editable)
    change(module)
    refused(project.identity(declared), "pkgy.common (", "came from outside the revision")


# What a bundle says of its sources.


def provenance(project, source, *more):
    answer = project.run("build", source, "-t", "gfx942", "-j1", "--no-cache", "-o", project.root.parent / "out", *more)
    assert answer.code == 0, answer
    (bundle,) = (project.root.parent / "out").glob("*.aotk")
    shown = project.run("show", bundle, "--json").json("show")
    data = bundle.read_bytes()
    bundle.unlink()
    return shown["provenance"], data


def test_sources_are_as_committed_only_if_every_file_is(project):
    module, declared = laid_out(project, editable)
    commit = project.git("rev-parse", "HEAD")
    said, _ = provenance(project, declared)
    assert (said["revision"], said["sources"], "modified" in said) == (commit, "as committed", False)
    change(module)
    said, _ = provenance(project, declared)
    assert (said["sources"], said["modified"]) == ("modified", "pkgy/common.py")
    project.git("update-index", "--assume-unchanged", "pkgy/common.py")
    assert provenance(project, declared)[0]["modified"] == "pkgy/common.py"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_file_that_was_never_committed_is_not_as_committed(project, ignored):
    project.write("pkgy/__init__.py")
    declared = project.write("aot/decl.py", KERNEL.format(imports=IMPORT))
    project.write(".gitignore", "common.py\n" if ignored else "")
    project.commit()
    project.write("pkgy/common.py", COMMON)
    project.pth("pkgy", str(project.root))
    said, _ = provenance(project, declared)
    assert (said["sources"], said["modified"]) == ("modified", "pkgy/common.py")


def test_an_installed_copy_is_not_as_committed(project):
    module, declared = laid_out(project, on_the_path)
    project.path = ""
    shutil.copytree(project.root / "pkgy", project.site / "pkgy")
    change(project.site / "pkgy" / "common.py")
    said, _ = provenance(project, declared)
    assert (said["sources"], said["modified"]) == ("modified", "pkgy.common")


def test_a_module_of_no_repository_is_named(project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "loose.py").write_text(COMMON)
    project.path = str(tmp_path / "elsewhere")
    declared = project.write("decl.py", KERNEL.format(imports="from loose import factor"))
    project.commit()
    said, _ = provenance(project, declared)
    assert (said["sources"], said["outside"]) == ("as committed", "loose")


def test_the_same_kernels_by_path_and_by_name_are_the_same_bundle(project):
    project.write("mykernels/__init__.py")
    project.write("mykernels/common.py", COMMON)
    folder = project.write("mykernels/decl.py", KERNEL.format(imports="from mykernels.common import factor")).parent
    project.commit()
    project.path = str(project.root)
    said, by_path = provenance(project, folder, "--name", "x")
    assert said["sources"] == "as committed"
    assert provenance(project, "mykernels", "--name", "x") == (said, by_path)
