"""Where bundles are served from: a moved folder, a read-only root, no HOME, an unprivileged user, no compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Everything that Python itself reports as touching the file system, the network or another process.
PROGRAM = """
import json, os, sys

touched = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate",
           "os.utime", "shutil.", "tempfile.", "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn")

def watch(event, args):
    if event == "open" and args[2] and args[2] & WRITES:
        touched.append([event, str(args[0])])
    elif event.startswith(CHANGES):
        touched.append([event, str(args)[:200]])

sys.addaudithook(watch)
import aotkern
from aotkern import Pointer
from aotkern.errors import MissError

bundle = aotkern.load(sys.argv[1], driver="null")
bundle.preload()
x, out = Pointer(0x10000, "fp32", 4096), Pointer(0x20000, "fp32", 4096)
for n in (16, 17):
    bundle["scale"][1](x, out, n, 1.0)
try:
    bundle["scale"][1](x, out, 0.5, 1.0)
    raise SystemExit("no miss")
except MissError as error:
    missed = str(error)
print(json.dumps({"touched": touched, "launches": bundle.counters().launches, "missed": missed,
                  "compilers": sorted({"triton", "torch"} & set(sys.modules))}))
"""


def serve(path: Path, *, user: int | None = None, interpreter: str = sys.executable, **changes: str) -> dict:
    """Serve from a bundle in a bare process; what it says of itself."""
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/nonexistent", **changes}
    command = [interpreter, "-c", PROGRAM, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd="/", user=user, group=user, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def bundle(tmp_path, data) -> Path:
    path = tmp_path / "served" / "scale.gfx942.aotk"
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    yield path
    path.parent.chmod(0o755)


@pytest.mark.parametrize("home", [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}])
def test_serving_writes_nothing_and_needs_no_home_and_no_compiler(bundle, home):
    said = serve(bundle, **home)
    assert said["touched"] == []
    assert said["compilers"] == []
    assert said["launches"] == 2
    assert said["missed"].startswith("scale: no prebuilt variant fits this call\nnearest: scale[hip:gfx942](")


NOBODY = 65534
SITE = sysconfig.get_paths()["purelib"]


def interpreter_for_nobody(path: Path) -> str | None:
    """An interpreter with which an unprivileged user reaches the sources, their dependencies and the bundle."""
    probe = f"import aotkern, zstandard; open({str(path)!r}).close()"
    for interpreter in (sys.executable, shutil.which("python3", path="/usr/bin:/bin") or ""):
        environment = {"PYTHONPATH": f"{ROOT}:{SITE}"}
        try:
            command = [interpreter, "-c", probe]
            done = subprocess.run(
                command, user=NOBODY, group=NOBODY, cwd="/", env=environment, capture_output=True, check=False
            )
        except (PermissionError, FileNotFoundError):
            continue
        if done.returncode == 0:
            return interpreter
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_unprivileged_user(bundle):
    for parent in bundle.parents[:4]:
        parent.chmod(parent.stat().st_mode | 0o055)
    interpreter = interpreter_for_nobody(bundle)
    if interpreter is None:
        pytest.skip("the interpreter or the sources are in a folder that only root can enter")
    said = serve(bundle, user=NOBODY, interpreter=interpreter, PYTHONPATH=f"{ROOT}:{SITE}")
    assert (said["touched"], said["launches"]) == ([], 2)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_system_call_writes(bundle, tmp_path):
    log = tmp_path / "strace.txt"
    calls = "openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,socket,connect,execve"
    command = ["strace", "-f", "-qq", "-e", f"trace={calls}", "-o", log, sys.executable, "-c", PROGRAM, bundle]
    # Without HOME, the interpreter itself asks the name service over a socket before any of this runs.
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True)
    lines = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]
    writing = [
        line for line in lines if not line.startswith(("open", "execve")) or "O_WRONLY" in line or "O_RDWR" in line
    ]
    assert [line for line in writing if "/dev/null" not in line] == []
    assert sum(line.startswith("execve") for line in lines) == 1


def test_moved_bundle_is_served_and_names_no_folder(bundle, tmp_path, data):
    moved = tmp_path / "elsewhere"
    shutil.copytree(bundle.parent, moved)
    moved.chmod(0o755)
    assert serve(moved / bundle.name)["launches"] == 2
    assert str(tmp_path).encode() not in data
    assert str(ROOT).encode() not in data
