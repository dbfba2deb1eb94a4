"""`--report FILE` of every audit, and the documents of the gate against their schemas."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import reports_made as made
from click.testing import CliRunner
from making import GFX942, GFX950, packed

from aotkern import schemas
from aotkern.cli import reports
from aotkern.cli.commands import aotkern
from aotkern.errors import InputError
from aotkern.report import formats, machine


@pytest.fixture
def folder(sample, tmp_path, monkeypatch):
    """The current folder, with a bundle and a golden manifest for each target."""
    monkeypatch.chdir(tmp_path)
    for target in (GFX942, GFX950):
        (tmp_path / f"scale.{target.slug}.aotk").write_bytes(packed(sample.build(target)))
        (tmp_path / f"{target.slug}.json").write_bytes(sample.build(target).manifest.to_bytes())
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(aotkern, arguments)


def fits(kind, value):
    jsonschema.Draft202012Validator(schemas.load(kind)).validate(value)
    return value


NAMES = tuple(f"reports/gate{suffix}" for suffix in formats.FORMATS)


def test_every_format_is_written_by_one_run(folder):
    step = '[[identity]]\nbundle = "scale.gfx942.aotk"\nbaseline = "gfx942.json"\n'
    (folder / "p.toml").write_text(f'version = 1\n{step}[verify]\nbundles = ["scale.gfx950.aotk"]\n', "utf-8")
    done = run("audit", "--policy", "p.toml", *(part for name in NAMES for part in ("--report", name)))
    assert done.exit_code == 0, done.output
    texts = {name.partition(".")[2]: (folder / name).read_text("utf-8") for name in NAMES}
    assert texts["html"].startswith("<!doctype html>")
    assert texts["md"].startswith("## ✅ aotkern: clean\n")
    assert ET.fromstring(texts["xml"].encode()).get("failures") == "0"
    assert json.loads(texts["sarif"])["runs"][0]["results"] == []
    assert fits("gate", json.loads(texts["json"]))["verdict"] == "clean"
    assert texts["txt"].endswith("gate p.toml: clean\n")
    assert done.output.endswith(texts["txt"])


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.HTML"])
def test_an_unknown_ending_is_refused_before_any_work(folder, name):
    done = run("audit", "resources", "absent.aotk", "--report", name)
    assert isinstance(done.exception, InputError)
    assert "ends in .html, .md, .xml, .sarif, .json, .txt" in str(done.exception)


def test_a_report_that_cannot_be_written_is_an_error(folder):
    (folder / "file").write_text("", "utf-8")
    done = run("audit", "resources", "scale.gfx942.aotk", "--report", "file/report.md")
    assert isinstance(done.exception, InputError)
    assert "file/report.md: expected a report that can be written" in str(done.exception)


@pytest.mark.parametrize("report", ["file/r.md", "/proc/r.md"])
@pytest.mark.parametrize("audit", [("--policy", "p.toml"), ("reproducible", "k.py"), ("jit", "--", "touch", "ran")])
def test_a_report_that_cannot_be_written_is_refused_before_any_work(folder, audit, report):
    (folder / "file").write_text("", "utf-8")
    (folder / "p.toml").write_text('version = 1\n[verify]\nbundles = ["absent"]\n', "utf-8")
    (folder / "k.py").write_text("raise SystemExit('was imported')\n", "utf-8")
    options = ("--report", f"markdown={report}" if audit[0] == "jit" else report)
    done = run("audit", audit[0], *options, *audit[1:]) if audit[0] != "--policy" else run("audit", *options, *audit)
    assert isinstance(done.exception, InputError), done.output
    assert f"{report}: expected a report that can be written" in str(done.exception)
    assert not (folder / "ran").exists()


def test_trying_whether_a_report_can_be_written_changes_nothing(folder):
    (folder / "old.md").write_text("old", "utf-8")
    for name in ("old.md", "new.md"):
        assert isinstance(run("audit", "resources", "absent.aotk", "--report", name).exception, InputError)
    assert (folder / "old.md").read_text("utf-8") == "old"
    assert not (folder / "new.md").exists()


def test_a_page_without_the_template_engine_is_refused_before_any_work(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for form in (("resources", "absent.aotk", "--report", "r.html"), ("jit", "--report", "html=r", "--", "absent")):
        done = run("audit", *form)
        assert "jinja2 is needed for an HTML report" in str(done.exception)


def test_a_single_audit_reports_like_a_gate(folder):
    done = run("audit", "resources", "scale.gfx942.aotk", "scale.gfx950.aotk", "--json", "--report", "r.json")
    assert done.exit_code == 0
    fits("audit", json.loads(done.output))
    gate = fits("gate", json.loads((folder / "r.json").read_text("utf-8")))
    assert [step["subject"] for step in gate["steps"]] == ["scale.gfx942.aotk", "scale.gfx950.aotk"]
    assert [step["report"] for step in gate["steps"]] == json.loads(done.output)["reports"]


def test_identity_names_the_file_where_findings_are_shown(folder):
    options = ("--target", "gfx942", "--bundle", "scale.gfx942.aotk", "--baseline", "gfx942.json")
    done = run("audit", "identity", *options, "--json", "--report", "r.json")
    assert done.exit_code == 0, done.output
    fits("audit", json.loads(done.output))
    (step,) = fits("gate", json.loads((folder / "r.json").read_text("utf-8")))["steps"]
    assert (step["name"], step["subject"], step["place"]) == ("identity", "hip:gfx942", "gfx942.json")


def test_a_policy_bounds_the_single_audit_too(folder):
    rule = '[[resources]]\nbundle = "x"\n[[resources.rule]]\nkernel = "scale"\ntarget = "gfx942"\nvgprs = 1\n'
    (folder / "p.toml").write_text("version = 1\n" + rule, "utf-8")
    done = run("audit", "resources", "scale.gfx942.aotk", "--policy", "p.toml", "--report", "r.md")
    assert done.exit_code == 1
    assert "out of bounds" in (folder / "r.md").read_text("utf-8")


@pytest.mark.parametrize("report", [made.full(), made.hostile(), made.large(20)], ids=["full", "hostile", "large"])
def test_documents_of_any_gate_fit_their_schema(report):
    fits("gate", json.loads(json.dumps(machine.gate(report))))


def test_a_gate_document_with_another_field_does_not_fit():
    value = machine.gate(made.full())
    value["steps"][2]["report"]["later"] = 1
    assert not jsonschema.Draft202012Validator(schemas.load("gate")).is_valid(value)


@pytest.mark.parametrize(
    ("kernels", "place"),
    [(("a.py",), "a.py"), (("a.py", "b.py"), "m.json"), (("folder",), "m.json"), ((), "m.json")],
)
def test_findings_are_shown_in_the_kernel_source_where_it_is_one_file(kernels, place):
    assert reports.place(kernels, "m.json") == place
