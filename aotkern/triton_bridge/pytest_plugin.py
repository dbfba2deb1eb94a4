"""A pytest marker and a fixture for code that must not compile at run time.

    @pytest.mark.jit_budget(0)
    def test_serving_step(server): ...             # fails when the test compiles anything, and says what and why

    def test_warm(jit, kernel):
        kernel[(1,)](x, 16)
        jit.ready()                                # what follows is in phase "serving"
        kernel[(1,)](x, 32)
        assert jit.report.count("serving") == 0

Installed with aotkern; costs a session nothing until a test uses one of the two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

_MARKER = "jit_budget(compiles, mode='observe'): fail the test when it compiles more than this many Triton variants"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def jit() -> Iterator[Any]:
    """Counts what the test compiles: an `aotkern.audit.counting.JitCount`."""
    from aotkern.audit.counting import count_jit  # noqa: PLC0415 - only tests that ask for it pay

    with count_jit() as counted:
        yield counted


# Not `wrapper=True`: pluggy knows that from 1.2 on, and older ones fail every session in which this plugin is found.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Run a marked test under its budget."""
    marker = item.get_closest_marker("jit_budget")
    if marker is None:
        yield
        return
    from aotkern.audit.counting import count_jit  # noqa: PLC0415
    from aotkern.report.jit import reasons  # noqa: PLC0415

    allowed, mode = _arguments(*marker.args, **marker.kwargs)
    with count_jit(at_most=allowed, mode=mode) as counted:
        outcome = yield
    if outcome.excinfo is not None:
        return  # the test failed by itself: that is what is to be read
    report = counted.report
    failure = ""
    if report.obstacle:
        failure = f"compiles could not be counted: {report.obstacle}"
    elif report.verdict.exit_code:
        failure = f"{report.count()} compiles, {allowed} allowed\n{reasons(report)}"
    if failure:
        _fail(outcome, pytest.fail.Exception(failure, pytrace=False))


def _fail(outcome: Any, error: BaseException) -> None:
    """Let a test fail from behind its call: in a wrapper of this form nothing may be raised."""
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(error)
    else:  # pluggy before 1.1
        outcome._result, outcome._excinfo = None, (type(error), error, error.__traceback__)


def _arguments(compiles: int, mode: Any = "observe") -> tuple[int, Any]:
    return compiles, mode
