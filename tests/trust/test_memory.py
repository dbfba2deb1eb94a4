"""What was accepted once is remembered apart from the delivered files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from vouching import GFX942, GFX950, bundle, key, key_table, rule_table, statement, trust

from aotkern.errors import InputError
from aotkern.trust import Memory, Statement

TRUST = trust(key_table("a", key(1)), rule_table("a"))


def about(sequence: int, file: str = "pack.gfx942.aotk") -> Statement:
    return Statement.parse(statement(bundle(), file, sequence), "x")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "state" / "accepted.json")


def test_the_highest_number_of_each_name_and_target_is_kept(memory: Memory) -> None:
    assert memory.lowest("pack", GFX942, TRUST) == 0
    memory.remember(about(7))
    memory.remember(about(9, "more.gfx942.aotk"))
    assert memory.lowest("pack", GFX942, TRUST) == 7
    assert memory.lowest("more", GFX942, TRUST) == 9
    assert memory.lowest("pack", GFX950, TRUST) == 0


def test_a_revoked_statement_is_forgotten(memory: Memory) -> None:
    memory.remember(about(2**48 - 1))
    revoking = trust(key_table("a", key(1)), rule_table("a"), revoked=[str(about(2**48 - 1).id)])
    assert memory.lowest("pack", GFX942, revoking) == 0


def test_processes_at_the_same_time_lose_nothing(memory: Memory) -> None:
    names = [f"p{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: memory.remember(about(5, f"{name}.gfx942.aotk")), names))
    assert {memory.lowest(name, GFX942, TRUST) for name in names} == {5}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 10_000,
        b'{"format":"other/1","newest":{}}',
        b'{"format":"aotkern.trust-memory/1","newest":{"pack hip:gfx942":{"sequence":-1,"statement":"x"}}}',
        b'{"format":"aotkern.trust-memory/1","newest":{"pack hip:gfx942":{}}}',
        b'{"format":"aotkern.trust-memory/1","newest":[]}',
    ],
)
def test_a_memory_that_cannot_be_read_is_not_an_empty_one(memory: Memory, data: bytes) -> None:
    memory.path.parent.mkdir()
    memory.path.write_bytes(data)
    with pytest.raises(InputError, match=r"accepted\.json"):
        memory.lowest("pack", GFX942, TRUST)
    with pytest.raises(InputError, match=r"accepted\.json"):
        memory.remember(about(7))
    assert memory.path.read_bytes() == data


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a folder that can be written"):
        Memory(tmp_path / "file" / "accepted.json").remember(about(7))
