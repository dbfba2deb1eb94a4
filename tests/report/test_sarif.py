"""SARIF: rules, places, fingerprints, and the honest answer where nothing could be told."""

from __future__ import annotations

import json
from dataclasses import replace

import reports_made as made

from aotkern import __version__
from aotkern.audit.places import Place
from aotkern.report import sarif


def run(report):
    document = json.loads(sarif.render(report))
    assert document["version"] == "2.1.0"
    (one,) = document["runs"]
    return one


def test_a_result_for_each_finding_with_its_rule():
    one = run(made.full())
    assert [result["ruleId"] for result in one["results"]] == [
        "identity/different",
        "identity/different",
        "identity/missing",
        "resources/out-of-bounds",
    ]
    driver = one["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("aotkern", __version__)
    assert all(driver["rules"][r["ruleIndex"]]["id"] == r["ruleId"] for r in one["results"])
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"]) == 3


def test_a_finding_is_shown_at_the_file_of_its_step():
    places = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run(made.full())["results"]
    ]
    assert places == ["manifests/gfx942.json"] * 3 + ["kernels/wide%20here.py"]
    names = [r["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] for r in run(made.full())["results"]]
    assert names[3] == made.key("wide", made.GFX950)


def test_a_finding_about_a_kernel_is_shown_at_its_line():
    report = replace(made.full(), places={"mix": Place("kernels/my mix.py", 42)})
    places = [result["locations"][0]["physicalLocation"] for result in run(report)["results"]]
    assert places[:2] == [{"artifactLocation": {"uri": "kernels/my%20mix.py"}, "region": {"startLine": 42}}] * 2
    assert places[2] == {"artifactLocation": {"uri": "manifests/gfx942.json"}, "region": {"startLine": 1}}


def test_a_step_that_could_not_tell_makes_the_run_unsuccessful():
    (invocation,) = run(made.full())["invocations"]
    assert invocation["executionSuccessful"] is False
    told = invocation["toolExecutionNotifications"]
    (notification,) = [one for one in told if one["level"] == "error"]
    assert len(told) == 1 + len(made.full().steps)
    assert "identity out/other.aotk could not tell: absent" in notification["message"]["text"]
    (clean,) = run(made.large(20))["invocations"]
    assert clean["executionSuccessful"]
    assert {one["level"] for one in clean["toolExecutionNotifications"]} == {"note"}


def test_fingerprints_are_stable_and_distinct():
    first, second = (
        [result["partialFingerprints"]["aotkern/v1"] for result in run(made.full())["results"]] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == len(first)


def test_hostile_names_are_data():
    one = run(made.hostile())
    shown = made.HOSTILE.replace("[", "\\[").replace("]", "\\]")
    assert one["results"][-1]["message"]["text"] == f"{shown}: {shown}"
    uri = one["results"][-1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert not set(uri) & set(" <>\"'`\n")
