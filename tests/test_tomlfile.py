"""Every file in TOML is read by one reader: bounded, and with one wording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aotkern import tomlfile
from aotkern.audit.coverage import domain
from aotkern.audit.jit import budget
from aotkern.audit.policy import Policy
from aotkern.audit.replay.workload import Workload
from aotkern.errors import InputError
from aotkern.trust.trustfile import Trust

READERS = (budget.read, domain.read, Policy.read, Workload.read, Trust.read)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__qualname__ + read.__module__)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = " + "[" * 3_000 + "]" * 3_000, "TOML"),
        ("x = " + "[" * 60 + "]" * 60, "nested at most 50 deep"),
        ("x = " + "9" * 5_000, "TOML"),
        ("x = 0x" + "f" * 5_000, r"integers from -2\^63 to 2\^64-1, found an integer of 20000 bits"),
        ("x = 18446744073709551616", r"integers from -2\^63"),
        ("version = true", "version = 1, found True"),
        ("version = 1.0", r"version = 1, found 1\.0"),
        ("", "version = 1, found nothing"),
        ("\0", "TOML"),
        ("#" * (tomlfile.MAX_BYTES + 1), "at most 1048576 bytes"),
    ],
    ids=range(10),
)
def test_what_no_reader_can_bear_is_refused(
    tmp_path: Path, read: Callable[[Path], object], text: str, expected: str
) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=expected) as caught:
        read(path)
    assert all(problem.where.startswith(str(path)) for problem in caught.value.problems)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__qualname__ + read.__module__)
def test_a_file_that_is_not_there_or_cannot_be_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for path in (tmp_path / "absent.toml", tmp_path, Path("a\0b")):
        with pytest.raises(InputError, match="that can be read"):
            read(path)


def test_the_largest_integers_and_the_deepest_nesting_are_read() -> None:
    text = f"a = {tomlfile.LOWEST}\nb = {tomlfile.HIGHEST}\nx = " + "[" * 49 + "]" * 49
    assert tomlfile.parse(text.encode(), "x")["b"] == tomlfile.HIGHEST


@pytest.mark.parametrize(
    "argument",
    [
        *('{ tensor = "fp32", aligned = [1] }', '{ tensor = "fp32", storage = [0] }'),
        *(
            '{ tensor = "fp32", aligned = 1 }',
            '{ tensor = "fp32", aligned = 0.0 }',
            '{ tensor = "fp32", storage = {} }',
        ),
    ],
)
def test_words_of_a_domain_have_their_type(argument: str) -> None:
    text = f'version = 1\n[[call]]\nkernel = "k"\n[call.arguments]\nx = {argument}\n'
    with pytest.raises(InputError, match=r"d: call 1: x: (aligned|storage)"):
        domain.from_values(tomlfile.parse(text.encode(), "d"), "d")


@pytest.mark.parametrize("options", ["false", "[]", '""', "0"])
def test_options_of_a_domain_are_a_table_or_not_there(options: str) -> None:
    text = f'version = 1\n[[call]]\nkernel = "k"\noptions = {options}\n[call.arguments]\nx = {{ none = true }}\n'
    with pytest.raises(InputError, match="tables `arguments` and `options`"):
        domain.from_values(tomlfile.parse(text.encode(), "d"), "d")
