"""The borders between the rooms, read from the source: who may import whom, and who may touch the process."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from making import GFX942, SCALE, built, packed, written

ROOT = Path(__file__).parents[1]

RUN_TIME = (
    "errors",
    "forklock",
    "deny",
    "advice",
    "dispatchadvice",
    "target",
    "digest",
    "canonical",
    "fields",
    "tomlfile",
    "spec",
    "codeobject",
    "manifest",
    "bundle",
    "settings",
    "arguments",
    "dlpack",
    "dispatch",
    "abi",
    "grid",
    "compileoptions",
    "closure",
    "influences",
    "lock",
    "trace",
    "drivers",
    "loader",
    "emulator",
    "trust",
)
"""The rooms that a program needs to load and launch."""

WATCHED_PROCESS = ("aotkern.triton_bridge.surroundings", "aotkern.triton_bridge.inject.sitecustomize")
"""What runs in somebody else's program: it learns its task from the environment, and says on standard error alone."""

FORBIDDEN_AT_RUN_TIME = ("triton", "torch", "aotkern.build", "aotkern.audit", "aotkern.report", "aotkern.cli")

MAY_READ_THE_ENVIRONMENT = (
    "aotkern.settings",
    "aotkern.build.dask_station",
    "aotkern.build.environment",
    *WATCHED_PROCESS,
)
"""Below `cli` these may: a worker sets variables of its own for one compile; where bundles and drivers are found is part of a deployment; above a task on a Dask worker
there is no command line; and see `WATCHED_PROCESS`."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((ROOT / "aotkern").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(text: str, module: str, *, package: bool = False) -> Iterator[str]:
    """Every module that a source imports, inside functions too; `from a import b` names `a.b`, and `a` for the rest."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level or None] if node.level and not package else module.split(".")
            if package and node.level > 1:
                base = base[: 1 - node.level]
            root = ".".join((*(base if node.level else ()), *([node.module] if node.module else ())))
            names = [f"{root}.{alias.name}" for alias in node.names]
            yield from names
            if not all(name in MODULES for name in names):
                yield root


def graph() -> dict[str, set[str]]:
    """For each module what it imports, of the package and from outside."""
    return {
        name: set(imports(path.read_text("utf-8"), name, package=path.name == "__init__.py"))
        for name, path in MODULES.items()
    }


GRAPH = graph()


def inside(name: str, rooms) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def reached(start: str) -> set[str]:
    """Everything that a module imports, directly or through others of the package."""
    seen, stack = set(), [start]
    while stack:
        for name in GRAPH.get(stack.pop(), ()):
            if name not in seen:
                seen.add(name)
                stack.append(name)
    return seen


def members(*rooms: str) -> list[str]:
    return [name for name in MODULES if inside(name, [f"aotkern.{room}" for room in rooms])]


@pytest.mark.parametrize("module", members(*RUN_TIME))
def test_the_run_time_half_knows_nothing_of_the_build_half(module):
    assert not {name for name in reached(module) if inside(name, FORBIDDEN_AT_RUN_TIME)}


@pytest.mark.parametrize("module", members("audit"))
def test_audits_know_nothing_of_presentation(module):
    assert not {name for name in reached(module) if inside(name, ("aotkern.report", "aotkern.cli"))}


@pytest.mark.parametrize("module", members("report"))
def test_presentation_opens_nothing(module):
    assert not {
        name for name in GRAPH[module] if inside(name, ("aotkern.bundle", "aotkern.codeobject.elf", "aotkern.cli"))
    }
    calls = set(called(MODULES[module].read_text("utf-8")))
    assert not calls & {"open", "read_bytes", "read_text", "write_text", "write_bytes"}


def test_nothing_below_the_command_line_knows_it():
    below = {name for name in MODULES if not inside(name, ("aotkern.cli", "aotkern.__main__"))}
    assert not {name for name in below if any(inside(used, ("aotkern.cli",)) for used in GRAPH[name])}


def called(text: str) -> Iterator[str]:
    """The last part of the name of everything that is called."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def trespasses(text: str) -> set[str]:
    """What a source does that only the command line may: print, ask, exit, read the environment."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("print", "input", "exit")
        ):
            found.add(node.func.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in ("sys.exit", "os._exit", "os.environ", "os.environb", "os.getenv", "sys.stdout", "sys.stderr"):
                found.add(name)
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "sys"):
            found.update(alias.name for alias in node.names if alias.name in ("environ", "getenv", "exit"))
        if isinstance(node, ast.Raise) and "SystemExit" in ast.dump(node):
            found.add("raise SystemExit")
    return found


@pytest.mark.parametrize("module", [name for name in MODULES if not inside(name, ("aotkern.cli",))])
def test_below_the_command_line_nothing_prints_exits_or_reads_the_environment(module):
    allowed = {"os.environ", "os.getenv"} if module in MAY_READ_THE_ENVIRONMENT else set()
    allowed |= {"sys.stderr"} if module in WATCHED_PROCESS else set()
    assert trespasses(MODULES[module].read_text("utf-8")) <= allowed


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "import sys\nsys.exit(2)",
        "import os\nx = os.environ['A']",
        "import os\ndef f():\n    return os.getenv('A')",
        "from os import environ",
        "raise SystemExit(1)",
        "input()",
    ],
)
def test_a_trespass_would_be_seen(text):
    assert trespasses(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch.nn", "torch.nn"),
        ("def f():\n    from triton import jit", "triton"),
        ("from aotkern import build", "aotkern.build"),
        ("from ..build import pool", "aotkern.build.pool"),
        ("from . import key", "aotkern.spec.key"),
    ],
)
def test_an_import_would_be_seen(text, found):
    assert found in set(imports(text, "aotkern.spec.constant"))


def test_a_relative_import_of_a_package_starts_in_the_package():
    assert "aotkern.spec.key" in set(imports("from .key import Fixed", "aotkern.spec", package=True))
    assert "aotkern.build.pool" in set(imports("from ..build import pool", "aotkern.spec", package=True))


def test_there_is_no_import_cycle():
    edges = {name: {used for used in GRAPH[name] if used in MODULES and used != name} for name in MODULES}
    state: dict[str, int] = {}

    def visit(name, path):
        state[name] = 1
        for used in sorted(edges[name]):
            if state.get(used) == 1:
                pytest.fail(
                    "cycle: " + " -> ".join((*path[path.index(used) :], used) if used in path else (name, used))
                )
            if used not in state:
                visit(used, (*path, used))
        state[name] = 2

    for name in MODULES:
        if name not in state:
            visit(name, (name,))


def packages() -> set[str]:
    """Folders of Python modules in the tree, under the names by which they are installed."""
    found = set()
    for folder, name in (("aotkern", "aotkern"), ("kernels", "aotkern_kernels")):
        for path in (ROOT / folder).rglob("*.py"):
            inner = path.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *inner)))
    return found


def test_every_folder_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(project["tool"]["setuptools"]["packages"]) == packages()


def test_every_schema_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "*.json" in project["tool"]["setuptools"]["package-data"]["aotkern.schemas"]


_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("triton", "torch", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:] = sys.argv.pop(1).split("\\n")
from aotkern.cli import main
try:
    main()
finally:
    sys.stderr.write("\\n" + " ".join(sorted(sys.modules)))
"""


def without_compiler(*arguments, folder):
    """Run a command where Triton, torch and numpy are absent; its exit code, output, and what it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, "\n".join(sys.path), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    return done.returncode, done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [("verify",), ("show",), ("show", "--variants"), ("manifest",), ("diff",)], ids=" ".join
)
def test_reading_commands_work_without_triton_and_torch(sample, tmp_path, arguments):
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(packed(sample.build(GFX942)))
    files = (path, path) if arguments == ("diff",) else (path,)
    code, output, imported = without_compiler(*arguments, *files, folder=tmp_path)
    assert code == 0, output
    assert output
    assert not {name for name in imported if inside(name, ("triton", "torch", "numpy"))}


@pytest.mark.parametrize("audit", ["numerics", "static"])
def test_an_audit_that_needs_numpy_says_so(sample, tmp_path, audit):
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(packed(sample.build(GFX942)))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, "\n".join(sys.path), "audit", audit, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"aotkern: numpy is needed for `{audit}`: pip install 'aotkern[emulator]'"
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, said)


def test_a_difference_is_found_without_numpy(sample, tmp_path):
    """Instructions are shown side by side where the disassembler is installed; it does without numpy."""
    old, new = tmp_path / "old.aotk", tmp_path / "new.aotk"
    old.write_bytes(packed(sample.build(GFX942)))
    changed = built(written(tmp_path, SCALE.replace("tl.constexpr(3)", "tl.constexpr(5)"), "scale.py"), GFX942)
    new.write_bytes(packed(changed.targets[GFX942]))
    code, output, _ = without_compiler("diff", old, new, folder=tmp_path)
    assert code == 1, output
    assert "different" in output


def test_verify_imports_nothing_that_it_does_not_need(sample, tmp_path):
    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(packed(sample.build(GFX942)))
    _, _, imported = without_compiler("verify", path, folder=tmp_path)
    unneeded = ("aotkern.build", "aotkern.report", "aotkern.audit.identity", "rich", "platformdirs", "tarfile")
    assert not {name for name in imported if inside(name, unneeded)}


def test_help_imports_no_command(tmp_path):
    code, output, imported = without_compiler("--help", folder=tmp_path)
    assert code == 0
    assert "Commands" in output
    used = {name for name in imported if inside(name, ("aotkern",))}
    assert used == {
        "aotkern",
        "aotkern.cli",
        "aotkern.cli.commands",
        "aotkern.cli.lazy",
        "aotkern.errors",
        "aotkern.escape",
    }
