"""The JIT audit for machines: JSON with a schema, JUnit XML for CI, and a Prometheus text file."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping

from aotkern.audit.jit.causes import Explained
from aotkern.audit.jit.judge import JitReport, KernelRow, TuningRow
from aotkern.report.machine import audited, findings
from aotkern.report.plain import JSON, document
from aotkern.triton_bridge.watch import NEVER_WATCHED


def json_document(report: JitReport) -> JSON:
    """Everything: every compile with its reason (schema `jit.schema.json`)."""
    log = report.log
    return document(
        "jit",
        report.verdict,
        obstacle=report.obstacle or None,
        budget=report.budget.to_json(),
        processes=[
            {"pid": row.pid, "host": row.host, "command": row.command, "triton": list(row.triton)}
            for row in log.processes
        ],
        scope={
            "watched": list(log.watched),
            "missing": list(log.missing),
            "foreign": list(log.foreign),
            "never": list(NEVER_WATCHED),
            "faults": list(log.faults),
            "lost_lines": log.lost,
        },
        phases=list(report.phases),
        kernels=[_kernel(row) for row in report.rows],
        tunings=[_tuning(row) for row in report.tunings],
        findings=findings(report.findings),
    )


def _kernel(row: KernelRow) -> JSON:
    return {
        "phase": row.phase,
        "kernel": row.kernel,
        "module": row.module,
        "compiles": row.count,
        "variants": row.variants,
        "binaries": row.binaries,
        "outcomes": dict(row.outcomes),
        "routes": dict(row.routes),
        "ranks": dict(row.ranks),
        "seconds": round(row.seconds, 6),
        "excess": row.excess,
        "causes": [
            {"name": c.name, "kind": c.kind, "message": c.message, "advice": c.advice, "compiles": c.compiles}
            for c in row.causes
        ],
        "declaration": row.declaration,
        "events": [_event(explained) for explained in row.compiles],
    }


def _event(explained: Explained) -> JSON:
    compile_ = explained.compile
    return {
        "key": compile_.key,
        "at": compile_.at,
        "process": compile_.process,
        "rank": compile_.rank,
        "route": compile_.route,
        "outcome": str(compile_.outcome),
        "seconds": compile_.seconds,
        "object": compile_.object,
        "error": compile_.error,
        "values": dict(compile_.values),
        "stack": list(compile_.stack),
        "again": explained.again,
        "nearest": explained.nearest,
        "prebuilt": explained.prebuilt or None,
        "differences": [
            {"name": d.name, "aspect": str(d.aspect), "before": d.before, "after": d.after}
            for d in explained.differences
        ],
    }


def _tuning(row: TuningRow) -> JSON:
    return {
        "phase": row.phase,
        "kernel": row.kernel,
        "module": row.module,
        "retunes": row.count,
        "keys": row.keys,
        "varying": dict(row.varying),
        "chosen": list(row.chosen),
        "ranks": dict(row.ranks),
        "seconds": round(row.seconds, 6),
        "excess": row.excess,
        "message": row.message,
    }


def junit(report: JitReport) -> str:
    """One test case for each kernel and phase; a failure where a budget is exceeded, an error where nobody can tell."""
    rows = report.all_rows
    cases = max(len(rows), 1)
    failures = sum(row.excess is not None for row in rows)
    attributes = {"name": "aotkern.jit", "tests": str(cases), "failures": str(failures)}
    suite = ET.Element("testsuite", {**attributes, "errors": str(int(bool(report.obstacle)))})
    for row in rows:
        name = row.kernel if isinstance(row, KernelRow) else f"{row.kernel} (tuning)"
        case = ET.SubElement(
            suite, "testcase", {"classname": f"jit.{row.phase}", "name": name, "time": f"{row.seconds:.3f}"}
        )
        if row.excess is not None:
            text = "\n".join(c.message for c in row.causes) if isinstance(row, KernelRow) else row.message
            ET.SubElement(case, "failure", {"message": row.excess}).text = text
    if report.obstacle or not rows:
        case = ET.SubElement(suite, "testcase", {"classname": "jit", "name": "watch"})
        if report.obstacle:
            ET.SubElement(case, "error", {"message": report.obstacle})
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


_Samples = Iterable[tuple[Mapping[str, str], float]]


def prometheus(report: JitReport) -> str:
    """Counters for a node exporter's text file collector."""
    metrics: tuple[tuple[str, str, str, _Samples], ...] = (
        ("aotkern_jit_compiles", "counter", "Compiles at run time over all processes.", _outcomes(report)),
        ("aotkern_jit_seconds", "counter", "Seconds lost in compiles and tunings.", _seconds(report)),
        ("aotkern_jit_retunes", "counter", "Autotunings at run time.", _retunes(report)),
        ("aotkern_jit_over_budget", "gauge", "1 where a kernel exceeds its budget.", _excesses(report)),
        ("aotkern_jit_watched", "gauge", "0 when the audit could not tell.", [({}, float(not report.obstacle))]),
    )
    lines = []
    for name, kind, text, samples in metrics:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {number:g}" for labels, number in samples]
    return "\n".join(lines) + "\n"


def _outcomes(report: JitReport) -> _Samples:
    for row in report.rows:
        for outcome, number in row.outcomes.items():
            yield {"phase": row.phase, "kernel": row.kernel, "module": row.module, "outcome": outcome}, number


def _seconds(report: JitReport) -> _Samples:
    for row in report.rows:
        yield {"phase": row.phase, "kernel": row.kernel, "module": row.module, "what": "compile"}, row.seconds
    for tuning in report.tunings:
        yield {"phase": tuning.phase, "kernel": tuning.kernel, "module": tuning.module, "what": "tune"}, tuning.seconds


def _retunes(report: JitReport) -> _Samples:
    for row in report.tunings:
        yield {"phase": row.phase, "kernel": row.kernel, "module": row.module}, row.count


def _excesses(report: JitReport) -> _Samples:
    for row in report.rows:
        yield {"phase": row.phase, "kernel": row.kernel, "module": row.module}, float(row.excess is not None)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        name: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, text in labels.items()
    }
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "}"


audited.register(JitReport, json_document)
