"""The GitHub Action's script and the pre-commit hooks, run in a scratch repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from making import repository

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "aotkern-identity"

HELPER = """\
import triton


@triton.jit
def activation(value):
    return value * 3
"""

GFX942 = """\
import triton
import triton.language as tl
from helper import activation

from aotkern.spec import Kernel, Pointer, Space


@triton.jit
def scale(x):
    tl.store(x, activation(tl.load(x)))


KERNELS = (Kernel(scale, Space(("gfx942",), {"x": Pointer("fp32", storage="any")}, options={"num_warps": 1})),)
"""

GFX950 = GFX942.replace("gfx942", "gfx950").replace("scale", "scale_gfx950")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A git function in a repository with a kernel for each chip and a helper that both share, as current folder."""
    pytest.importorskip("triton")
    folder = tmp_path / "project"
    git = repository(folder)
    for name, text in (("helper.py", HELPER), ("for_gfx942.py", GFX942), ("for_gfx950.py", GFX950)):
        (folder / name).write_text(text, "utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "Base")
    monkeypatch.chdir(folder)
    return git


@pytest.fixture
def action(tmp_path):
    """Run the action's script; its exit code, outputs, report, job summary and log."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "aotkern"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m aotkern "$@"\n', "utf-8")
    program.chmod(0o755)
    summary, output = tmp_path / "summary", tmp_path / "output"

    def action(**settings):
        summary.write_text("before\n", "utf-8")
        output.write_text("", "utf-8")
        values = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(output),
            "AOTKERN_KERNELS": "for_gfx942.py\n",
            "AOTKERN_TARGETS": "gfx942",
            **settings,
        }
        done = subprocess.run([ACTION / "identity"], env=values, capture_output=True, text=True, check=False)
        outputs = dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())
        report = Path(outputs["report"]).read_text("utf-8")
        assert summary.read_text("utf-8") == "before\n" + report
        return done.returncode, outputs["verdict"], report, done.stdout + done.stderr

    return action


def edit(name, old, new):
    path = Path(name)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_a_change_for_gfx950_alone_is_clean(project, action):
    edit("for_gfx950.py", "tl.load(x)", "tl.load(x) + 1")
    project("commit", "-qam", "Faster on gfx950")
    code, verdict, report, log = action()
    assert (code, verdict) == (0, "clean"), log
    assert report.startswith("## ✅ aotkern: clean\n")
    assert "1 identical against" in report


def test_a_change_for_gfx950_that_reaches_gfx942_is_found(project, action, tmp_path):
    edit("for_gfx950.py", "tl.load(x)", "tl.load(x) + 1")
    edit("helper.py", "value * 3", "value * 5")
    project("commit", "-qam", "Faster on gfx950")
    code, verdict, report, log = action(AOTKERN_HTML=str(tmp_path / "report.html"))
    assert (code, verdict) == (1, "findings"), log
    assert report.startswith("## ❌ aotkern: findings\n")
    assert "different, source changed: scale[hip:gfx942]" in report
    assert "scale[hip:gfx942]" in (tmp_path / "report.html").read_text("utf-8")


def test_what_a_filter_leaves_out_is_said_loudly(project, action):
    edit("for_gfx942.py", "tl.load(x)", "tl.load(x) + 1")
    project("commit", "-qam", "Faster on gfx942")
    code, verdict, report, log = action(AOTKERN_CHANGED_UNDER="*gfx950*")
    assert (code, verdict) == (0, "not concerned")
    assert "NOT CHECKED: the machine code of gfx942 was not compared, because none of the 1 files" in report
    assert "::warning title=aotkern identity::NOT CHECKED: the machine code of gfx942" in log


def test_every_change_is_checked_unless_a_filter_is_given(project, action):
    edit("helper.py", "value * 3", "value * 5")
    project("commit", "-qam", "Faster everywhere")
    code, verdict, _, log = action()
    assert (code, verdict) == (1, "findings")
    assert "::warning" not in log
    definition = (ACTION / "action.yml").read_text("utf-8")
    assert re.search(r'^  changed-under:\n(?:    .*\n|  {4,}.*\n)*?    default: ""$', definition, re.MULTILINE)


def test_a_pull_request_is_compared_with_where_it_left_its_base(project, action):
    project("branch", "-M", "main")
    project("checkout", "-q", "-b", "change")
    edit("for_gfx950.py", "tl.load(x)", "tl.load(x) + 1")
    project("commit", "-qam", "Faster on gfx950")
    project("checkout", "-q", "main")
    edit("helper.py", "value * 3", "value * 5")  # what others changed since is not this change's
    project("commit", "-qam", "Another change")
    project("update-ref", "refs/remotes/origin/main", "main")
    project("checkout", "-q", "change")
    code, verdict, _, log = action(GITHUB_BASE_REF="main")
    assert (code, verdict) == (0, "clean"), log


def test_a_new_branch_is_compared_with_the_commit_before(project, action):
    edit("for_gfx942.py", "tl.load(x)", "tl.load(x) + 1")
    project("commit", "-qam", "Faster on gfx942")
    assert action(AOTKERN_BEFORE="0" * 40)[:2] == (1, "findings")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"AOTKERN_BASE": "absent"}, "There is no commit absent here"),
        ({"AOTKERN_BASE": "--help"}, "There is no commit --help here"),
        ({}, "There is no commit HEAD~ here"),  # a shallow checkout, or a first commit
        ({"GITHUB_BASE_REF": "absent"}, "No common commit with origin/absent"),
        ({"AOTKERN_KERNELS": " \n"}, "The input kernels names nothing"),
        ({"AOTKERN_TARGETS": ""}, "The input target names nothing"),
        ({"AOTKERN_BASE": "HEAD", "AOTKERN_CHANGED_UNDER": "", "AOTKERN_KERNELS": "absent.py"}, "exit code 2"),
    ],
)
def test_what_cannot_be_told_is_said_with_its_reason(project, action, settings, reason):
    code, verdict, report, log = action(**settings)
    assert (code, verdict) == (2, "could not tell"), log
    assert report.startswith("## aotkern: could not tell\n")
    assert reason in report


def test_a_crash_is_no_verdict(project, action, tmp_path):
    (tmp_path / "bin" / "aotkern").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    code, verdict, report, _ = action(AOTKERN_BASE="HEAD", AOTKERN_CHANGED_UNDER="")
    assert (code, verdict) == (2, "could not tell")
    assert "exit code 1 and no report" in report


def test_an_older_report_is_not_mistaken_for_this_one(project, action, tmp_path):
    Path("aotkern-identity.md").write_text("## ✅ aotkern: clean\n", "utf-8")
    (tmp_path / "bin" / "aotkern").write_text("#!/bin/sh\nexit 0\n", "utf-8")
    code, verdict, report, _ = action(AOTKERN_BASE="HEAD", AOTKERN_CHANGED_UNDER="")
    assert (code, verdict) == (2, "could not tell")
    assert "✅" not in report


def test_the_action_passes_every_setting_that_the_script_reads():
    definition = (ACTION / "action.yml").read_text("utf-8")
    passed = set(re.findall(r"^ {8}(AOTKERN_\w+):", definition, re.MULTILINE)) - {"AOTKERN_INSTALL"}
    read = set(re.findall(r"AOTKERN_\w+", (ACTION / "identity").read_text("utf-8")))
    assert passed == read
    inputs = set(
        re.findall(r"^ {2}([\w-]+):$", definition.partition("outputs:")[0].partition("inputs:")[2], re.MULTILINE)
    )
    assert inputs == set(re.findall(r"inputs\.([\w-]+)", definition))


def test_no_input_becomes_text_of_a_script():
    definition = (ACTION / "action.yml").read_text("utf-8")
    runs = re.findall(r"^ +run: (.+)$", definition, re.MULTILINE)
    assert len(runs) == 2
    assert not [line for line in runs if "${{" in line]


def hook(name):
    """`entry` and `args` of a hook, and the pattern of the files that call it; None where every change does."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8").partition(f"- id: {name}\n")[2].partition("\n- id:")[0]
    fields = dict(re.findall(r"^  (\w+): (.+)$", text, re.MULTILINE))
    arguments = [item.strip() for item in fields.get("args", "[]").strip("[]").split(",") if item.strip()]
    every = fields.get("always_run") == "true"
    return [*shlex.split(fields["entry"]), *arguments], None if every else re.compile(fields["files"])


@pytest.mark.parametrize(("edited", "code"), [("for_gfx950.py", 0), ("helper.py", 1)])
def test_the_hook_compares_with_the_last_commit(project, edited, code):
    command, files = hook("aotkern-identity")
    assert files is None
    edit(edited, "x)" if "gfx" in edited else "value * 3", "x) + 1" if "gfx" in edited else "value * 5")
    assert command[0] == "aotkern"
    assert command[-1] == "kernels"
    done = subprocess.run(
        [sys.executable, "-m", *command[:-1], "for_gfx942.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("identity: clean" in done.stdout) == (code == 0)


def test_the_action_is_what_github_asks_of_one():
    """Held against the schema that check-jsonschema brings along; no network."""
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions"]
    done = subprocess.run([*command, str(ACTION / "action.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def pre_commit(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_pre_commit_accepts_the_hooks():
    pytest.importorskip("pre_commit")
    assert pre_commit("validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")) == (0, "")


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        (("for_gfx950.py",), 0, "Passed"),
        (("for_gfx950.py", "helper.py"), 1, "different: scale[hip:gfx942]"),
        (("helper.py",), 1, "different: scale[hip:gfx942]"),
    ],
)
def test_pre_commit_runs_the_hook(project, tmp_path, changed, code, said):
    """As users run it, but for the environment, which pre-commit would fetch and is this one here."""
    pytest.importorskip("pre_commit")
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8").partition("- id: aotkern-identity\n")[2]
    fields = [line for line in text.partition("\n- id:")[0].splitlines() if not line.strip().startswith("#")]
    kept = [line for line in fields if not re.match(r"  (entry|language|additional_dependencies|args):", line)]
    arguments = [sys.executable, "-m", "aotkern", "audit", "identity", "--target", "gfx942", "--baseline-ref", "HEAD"]
    lines = ["repos:", "- repo: local", "  hooks:", "  - id: aotkern-identity"]
    lines += [f"  {line}" for line in kept]
    lines += ["    language: system", f"    entry: {shlex.join(arguments)}", "    args: [for_gfx942.py]"]
    Path(".pre-commit-config.yaml").write_text("\n".join(lines) + "\n", "utf-8")
    for name in changed:
        edit(name, "x)" if "gfx" in name else "value * 3", "x) + 1" if "gfx" in name else "value * 5")
    project("add", ".")
    done, output = pre_commit("run", "--verbose", PRE_COMMIT_HOME=str(tmp_path / "pre-commit"))
    assert done == code, output
    assert said in output


def test_the_gate_hook_runs_the_whole_gate(project):
    command, files = hook("aotkern-gate")
    assert command == ["aotkern", "audit"]
    assert files.search("audits/policy.toml")
