"""The scratch repository of the gate's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gate_scratch import HELPER, KERNELS, POLICY, build, git, run


@pytest.fixture(scope="session")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with kernels, golden manifests and a policy, all committed, and the bundles that were approved."""
    folder = tmp_path_factory.mktemp("approved")
    (folder / "audits").mkdir()
    (folder / "manifests").mkdir()
    for name, text in (("helper.py", HELPER), ("kernels_here.py", KERNELS), ("audits/policy.toml", POLICY)):
        (folder / name).write_text(text, "utf-8")
    (folder / ".gitignore").write_text("/out/\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AOTKERN_CACHE", str(tmp_path_factory.mktemp("store")))
        build()
        for target in ("gfx942", "gfx950"):
            assert run("manifest", f"out/small.{target}.aotk", "--out", f"manifests/{target}.json").exit_code == 0
        git("init", "--quiet")
        git("add", ".")
        git("commit", "--quiet", "-m", "Approved")
    return folder


@pytest.fixture
def repository(approved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the approved repository, as the current folder."""
    folder = tmp_path / "repository"
    shutil.copytree(approved, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AOTKERN_CACHE", str(tmp_path / "store"))
    return folder
