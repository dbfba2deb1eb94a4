"""Where misses are errors, a process that cannot be served gets no Triton that compiles: whatever the program swallows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from serving import built, recorded

import aotkern
import aotkern.bundle
from aotkern import schemas

pytest.importorskip("triton")

HERE = Path(__file__).parent
REPOSITORY = Path(aotkern.__file__).parents[1]
SWALLOWS = """
for _ in range(3):
    try:
        import triton
    except ImportError as error:
        print("refused:", error)
try:
    import triton.language
except ImportError as error:
    print("refused:", error)
import sys
print("triton" in sys.modules)
"""
"""A program that looks whether Triton is there, as torch does, and goes on."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> Path:
    import served_kernels
    from serving import FP32

    folder = tmp_path_factory.mktemp("closed") / "out"
    built(recorded(lambda: served_kernels.scale[(1,)](FP32, FP32, 16, BLOCK=64)), folder)
    return folder


def python(code: str, **environment: str):
    inject = REPOSITORY / "aotkern" / "triton_bridge" / "inject"
    given = {name: value for name, value in os.environ.items() if not name.startswith("AOTKERN_")}
    given |= {"PYTHONPATH": os.pathsep.join((str(inject), str(REPOSITORY), str(HERE))), **environment}
    return subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)


def run(*arguments: object, **environment: str):
    command = [sys.executable, "-m", "aotkern", "run", *map(str, arguments)]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(HERE))), **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def lock_of_another(folder: Path) -> str:
    path = folder / "other.lock"
    path.write_text(json.dumps({"format": "aotkern.lock", "version": 1, "bundles": {}}))
    return str(path)


@pytest.mark.parametrize("mode", ["error", "Error", "", "none", "ERROR ", None])
@pytest.mark.parametrize("fault", ["bundle", "lock", "lock file"])
def test_every_import_is_refused(bundles, tmp_path, mode, fault):
    chosen = {} if mode is None else {"AOTKERN_ON_MISS": mode}
    chosen["AOTKERN_BUNDLE"] = "/nonexistent/x.aotk" if fault == "bundle" else str(bundles)
    if fault != "bundle":
        chosen["AOTKERN_LOCK"] = lock_of_another(tmp_path) if fault == "lock" else str(tmp_path / "absent.lock")
    done = python(SWALLOWS, **chosen)
    assert done.stdout.count("refused: aotkern: process") == 4, done.stdout + done.stderr
    assert done.stdout.endswith("\nFalse\n")
    assert "is not served: " in done.stderr


@pytest.mark.parametrize("mode", ["warn", "jit"])
def test_lenient_modes_go_on_and_say_so(mode):
    done = python(SWALLOWS, AOTKERN_BUNDLE="/nonexistent/x.aotk", AOTKERN_ON_MISS=mode)
    assert done.stdout == "True\n"
    assert done.stderr.count("is not served: ") == 1


def test_unknown_modes_are_the_strict_ones_and_are_said(bundles):
    code = "import served_program; served_program.work([16, 2**31])"
    done = python(
        code, AOTKERN_BUNDLE=str(bundles), AOTKERN_ON_MISS="Warn", AOTKERN_UNTUNED="x", AOTKERN_OTHER_TRITON="y"
    )
    assert done.returncode == 1
    assert "MissError" in done.stderr
    for said in (
        "AOTKERN_ON_MISS='Warn' is none of error, warn, jit: taken for 'error'",
        "taken for 'miss'",
        "for '0'",
    ):
        assert said in done.stderr


def test_run_fails_where_an_import_was_refused_and_swallowed(bundles):
    hide = "import os; os.environ['AOTKERN_BUNDLE'] = '/nonexistent/x.aotk'\n"
    done = run("-b", bundles, "--", sys.executable, "-c", hide + SWALLOWS)
    assert done.returncode == 2
    assert "aotkern: 1 processes were refused Triton" in done.stderr


@pytest.mark.parametrize(
    ("command", "environment", "words"),
    [
        (["-c", "print(1)"], {}, "no process of the command imported Triton"),
        (["-I", "-c", "print(1)"], {}, "-I, -E or -S"),
        (["-c", "import served_kernels"], {"TRITON_INTERPRET": "1"}, "TRITON_INTERPRET is set"),
    ],
)
def test_run_of_nothing_that_was_served_fails(bundles, command, environment, words):
    done = run("--json", "-b", bundles, "--", sys.executable, *command, **environment)
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schemas.load("run")).validate(document)
    assert (done.returncode, document["processes"]) == (2, 0)
    assert words in done.stderr
    assert run("--on-miss", "jit", "-b", bundles, "--", sys.executable, *command, **environment).returncode == 0


def test_the_programs_own_failure_is_kept(bundles):
    assert run("-b", bundles, "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_a_process_that_only_imports_triton_is_served(bundles):
    done = run("-b", bundles, "--", sys.executable, "-c", "import triton")
    assert done.returncode == 0, done.stderr
    assert "1 processes served: 0 specialisations hit, 0 missed" in done.stderr


def test_a_server_that_swallows_the_plugins_error_compiles_nothing(bundles):
    code = """
import aotkern.triton_bridge.installed as installed, served_program
try:
    installed.plugin()
except Exception as error:
    print("plugin:", error)
served_program.work([16])
"""
    done = python(code.lstrip(), PYTHONPATH=f"{REPOSITORY}:{HERE}", AOTKERN_BUNDLE="/nonexistent/x.aotk")
    assert "plugin: /nonexistent/x.aotk" in done.stdout
    assert done.returncode == 1
    assert "MissError: served_kernels.scale: no bundle for hip:gfx942" in done.stderr


def test_a_binary_that_is_out_of_service_is_a_miss_that_says_so(bundles, monkeypatch, tmp_path, capfd):
    import served_kernels
    from serving import FP32, launching

    from aotkern.errors import MissError

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    (key,) = (item.text for item in aotkern.bundle.Bundle.open(bundles / "served.gfx942.aotk").manifest.variants)
    for deny, served in (((), True), ((key,), False), (("0123456789ab",), True)):
        served_kernels.forget()
        installation = aotkern.install(bundles, deny=deny)
        try:
            with launching("gfx942"):
                if served:
                    served_kernels.scale[(1,)](FP32, FP32, 16, BLOCK=64)
                    continue
                with pytest.raises(MissError, match=r"variant: in service -> denied by served_kernels") as error:
                    served_kernels.scale[(1,)](FP32, FP32, 16, BLOCK=64)
                assert error.value.nearest == key
        finally:
            installation.remove()
    assert "deny: 0123456789ab denies nothing in the bundles that serve this process" in capfd.readouterr().err


def test_denied_by_the_command_and_by_the_environment(bundles):
    (key,) = (item.text for item in aotkern.bundle.Bundle.open(bundles / "served.gfx942.aotk").manifest.variants)
    program = (sys.executable, "-c", "import served_program; served_program.work([16])")
    for options, environment in ((("--deny", key), {}), ((), {"AOTKERN_DENY": key})):
        done = run(*options, "-b", bundles, "--", *program, **environment)
        assert done.returncode == 1
        assert f"denied by {key}" in done.stderr
    assert run("--deny", "nonsense", "-b", bundles, "--", *program).returncode == 2


def test_a_lock_vouches_for_a_file_that_anybody_can_write(bundles, tmp_path):
    from aotkern.errors import TrustError
    from aotkern.lock import Lock
    from aotkern.triton_bridge.installed import opened

    path = tmp_path / "served.gfx942.aotk"
    path.write_bytes((bundles / "served.gfx942.aotk").read_bytes())
    path.chmod(0o666)
    with pytest.raises(TrustError, match="anybody can write it"):
        opened((path,), None)
    Lock.of([aotkern.bundle.Bundle.open(path)]).write(tmp_path / "lock")
    assert len(opened((path,), tmp_path / "lock")) == 1
