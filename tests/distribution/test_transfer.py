"""Push and pull against a real registry and against one in this process: the way that is meant."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from registries import TRUST, FakeRegistry, Outgoing, at
from vouching import GFX942, GFX950, NOW, bundle, key, key_table, rule_table, trust

from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.distribution import Pulled, Wanted, package, pull, push
from aotkern.distribution.reference import Reference
from aotkern.distribution.registry import Registry
from aotkern.errors import InputError, IntegrityError, RemoteError, TrustError
from aotkern.target import Target
from aotkern.trust import Memory, join, joinable, signature_path


def packages(outgoing: Outgoing, *targets: Target, name: str = "pack") -> list[object]:
    return [package(outgoing.path(target, name), None, NOW) for target in targets]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_by_tag_and_by_digest_each_target_pulls_its_own(host: str, outgoing: Outgoing) -> None:
    address = push(at(host, "flow/both:v1"), packages(outgoing, GFX942, GFX950))
    index = Reference.parse(address)
    assert isinstance(index.name, Digest)
    for target in (GFX942, GFX950):
        by_tag = pull(at(host, "flow/both:v1"), Wanted(target), outgoing.into / "tag", TRUST, NOW)
        assert by_tag.path.read_bytes() == outgoing.path(target).read_bytes()
        assert signature_path(by_tag.path).read_bytes() == signature_path(outgoing.path(target)).read_bytes()
        assert by_tag.approval is not None
        assert (by_tag.changed, by_tag.approval.signers) == (True, ("a",))
        for exact in (address, by_tag.address):  # the index, and the artifact of one target
            remote = Registry(Reference.parse(exact), plain=True)
            found = pull(remote, Wanted(target), outgoing.into / exact[-6:], TRUST, NOW)
            assert found.digest == by_tag.digest
    assert names(outgoing.into / "tag") == [
        f"pack.{slug}.aotk{end}" for slug in ("gfx942", "gfx950") for end in ("", ".sig")
    ]


def test_a_second_push_keeps_what_the_tag_has_for_others(host: str, outgoing: Outgoing) -> None:
    remote = at(host, "flow/merge:v1")
    outgoing.make(GFX942, "more", "two")
    first = push(remote, packages(outgoing, GFX942))
    push(remote, packages(outgoing, GFX950))
    assert push(remote, packages(outgoing, GFX942, name="more")) != first
    with pytest.raises(
        RemoteError, match=r"one bundle for hip:gfx942, found 2 among: more hip:gfx942, pack hip:gfx942"
    ):
        pull(remote, Wanted(GFX942), outgoing.into, None, NOW)
    assert pull(remote, Wanted(GFX942, "more"), outgoing.into, None, NOW).path.name == "more.gfx942.aotk"
    assert pull(remote, Wanted(GFX950), outgoing.into, TRUST, NOW).changed
    outgoing.make(GFX942, "pack", "newer", 6)
    push(remote, packages(outgoing, GFX942))
    newest = pull(remote, Wanted(GFX942, "pack"), outgoing.into, TRUST, NOW)
    assert newest.path.read_bytes() == outgoing.path(GFX942).read_bytes()
    assert pull(Registry(Reference.parse(first), plain=True), Wanted(GFX942), outgoing.into / "old", TRUST, NOW).changed


def test_signing_later_changes_no_bundle(host: str, outgoing: Outgoing) -> None:
    remote = at(host, "flow/later:v1")
    push(remote, packages(outgoing, GFX942))
    before = pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW)
    both = trust(key_table("a", key(1)), key_table("b", key(2)), rule_table("a b", threshold=2))
    (offered,) = joinable(outgoing.path(), both, NOW)
    join(outgoing.path(), key(2), both, NOW, offered.statement.id)
    push(remote, packages(outgoing, GFX942))
    after = pull(remote, Wanted(GFX942), outgoing.into, both, NOW)
    assert (after.changed, after.digest) == (False, before.digest)


def test_unsigned_bundles_travel_where_nobody_asks(host: str, outgoing: Outgoing) -> None:
    remote = at(host, "flow/unsigned:v1")
    pull_into = outgoing.into / "pack.gfx942.aotk"
    push(remote, packages(outgoing, GFX942))
    pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW)
    signature_path(outgoing.path()).unlink()
    push(remote, packages(outgoing, GFX942))
    with pytest.raises(TrustError, match="expected a signature beside it, found none"):
        pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW)
    assert signature_path(pull_into).exists(), "a refusal leaves what was there"
    assert pull(remote, Wanted(GFX942), outgoing.into, None, NOW).approval is None
    assert not signature_path(pull_into).exists(), "a signature of something else does not stay beside it"


@pytest.mark.parametrize("reference", ["flow/none:v1", f"flow/none@{Digest.of(b'none')}"])
def test_what_is_not_there(host: str, outgoing: Outgoing, reference: str) -> None:
    with pytest.raises(RemoteError, match="status 404 nothing there"):
        pull(at(host, reference), Wanted(GFX942), outgoing.into, TRUST, NOW)


def test_a_near_relative_is_no_answer(served: FakeRegistry, pulled: Callable[..., Pulled]) -> None:
    with pytest.raises(
        RemoteError, match="one bundle for hip:gfx942:xnack-, found 0 among: pack hip:gfx942, pack hip:gfx950"
    ):
        pulled(Target.parse("gfx942:xnack-"))


def test_a_target_pulls_no_byte_of_another(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    pulled()
    other = {
        str(Digest.of(path.read_bytes())) for path in (outgoing.path(GFX950), signature_path(outgoing.path(GFX950)))
    }
    assert served.asked("GET", "/blobs/")
    assert not any(digest in path for _, path, _ in served.requests for digest in other)


def test_what_the_registry_has_is_not_sent_again(
    served: FakeRegistry, fake: tuple[object, str], outgoing: Outgoing
) -> None:
    push(at(fake[1], "team/pack:v2"), packages(outgoing, GFX942, GFX950))
    assert not served.asked("POST", "/blobs/")
    outgoing.make(GFX942, seed="new")
    push(at(fake[1], "team/pack:v2"), packages(outgoing, GFX942, GFX950))
    assert len(served.asked("POST", "/blobs/")) == 2, "the new bundle and its signature"


def test_what_is_in_place_is_not_fetched_again(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    first = pulled()
    stamp = first.path.stat()
    served.requests.clear()
    again = pulled()
    assert (again.changed, again.digest) == (False, first.digest)
    assert not served.asked("GET", f"/blobs/{first.digest}")
    assert (first.path.stat().st_mtime_ns, first.path.stat().st_ino) == (stamp.st_mtime_ns, stamp.st_ino)


def test_answers_in_chunks_of_unknown_total(served: FakeRegistry, pulled: Callable[..., Pulled]) -> None:
    served.chunked = True
    assert pulled().changed


# Interrupted downloads.


def test_a_broken_connection_is_resumed_where_it_ended(served: FakeRegistry, pulled: Callable[..., Pulled]) -> None:
    served.cut = [10_000_000, 100, 60]  # the signature's answer is whole, the bundle's end twice
    done = pulled()
    assert served.asked("GET", f"/blobs/{done.digest}") == ["", "bytes=100-", "bytes=160-"]


def test_a_registry_without_ranges_starts_again_and_nothing_is_written_twice(
    served: FakeRegistry, pulled: Callable[..., Pulled]
) -> None:
    served.ranges, served.cut = False, [10_000_000, 100, 160]
    done = pulled()
    assert len(served.asked("GET", f"/blobs/{done.digest}")) == 3


def test_a_part_outlives_the_process_that_left_it(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    served.cut = [10_000_000, 100, 0, 0, 0, 0, 0, 0]
    with pytest.raises(RemoteError, match="the whole blob"):
        pulled()
    (part,) = outgoing.into.iterdir()
    assert (part.name.startswith(".pack.gfx942.aotk."), part.stat().st_size) == (True, 100)
    served.cut = []
    served.requests.clear()
    done = pulled()
    assert served.asked("GET", f"/blobs/{done.digest}") == ["bytes=100-"]
    assert names(outgoing.into) == ["pack.gfx942.aotk", "pack.gfx942.aotk.sig"]


def test_a_part_that_holds_something_else_is_started_again(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    digest = Digest.of(outgoing.path().read_bytes())
    outgoing.into.mkdir()
    (outgoing.into / f".pack.gfx942.aotk.{digest.short}.part").write_bytes(b"something else")
    assert pulled().digest == digest
    assert served.asked("GET", f"/blobs/{digest}") == ["bytes=14-", ""]


@pytest.mark.parametrize("size", [0, 1])
def test_a_part_that_is_full_or_too_long(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing, size: int
) -> None:
    data = outgoing.path().read_bytes()
    outgoing.into.mkdir()
    (outgoing.into / f".pack.gfx942.aotk.{Digest.of(data).short}.part").write_bytes(data + bytes(size))
    assert pulled().digest == Digest.of(data)
    assert len(served.asked("GET", f"/blobs/{Digest.of(data)}")) == size


def test_parts_of_other_downloads_are_swept(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    outgoing.into.mkdir()
    (outgoing.into / ".pack.gfx942.aotk.000000000000.part").write_bytes(b"abandoned")
    (outgoing.into / ".pack.gfx950.aotk.000000000000.part").write_bytes(b"of another")
    pulled()
    assert names(outgoing.into) == [".pack.gfx950.aotk.000000000000.part", "pack.gfx942.aotk", "pack.gfx942.aotk.sig"]


def test_a_link_in_place_of_a_part_is_not_followed(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    outgoing.into.mkdir()
    digest = Digest.of(outgoing.path().read_bytes())
    (outgoing.into / f".pack.gfx942.aotk.{digest.short}.part").symlink_to(outside)
    with pytest.raises(InputError, match="a file that can be written"):
        pulled()
    assert outside.read_bytes() == b"precious"


def test_links_in_place_of_the_results_are_replaced(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outgoing.into.mkdir()
    for name in ("pack.gfx942.aotk", "pack.gfx942.aotk.sig"):
        (outgoing.into / name).symlink_to(outside)
    assert pulled().path.is_symlink() is False
    assert not outside.exists()


def test_eight_that_want_one_file_fetch_it_once(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    start, done, failed = threading.Barrier(8), [], []

    def one() -> None:
        start.wait()
        try:
            done.append(pulled().digest)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert set(done) == {Digest.of(outgoing.path().read_bytes())}
    assert names(outgoing.into) == ["pack.gfx942.aotk", "pack.gfx942.aotk.sig"]


# Refusals before anything leaves or gets its name.


def test_only_sound_bundles_leave(outgoing: Outgoing) -> None:
    data = outgoing.path().read_bytes()
    outgoing.path().write_bytes(data[:-1])
    with pytest.raises(IntegrityError):
        package(outgoing.path(), None, NOW)
    outgoing.path().write_bytes(data)
    assert package(outgoing.path(), TRUST, NOW).signatures
    with pytest.raises(TrustError, match="no rule"):
        package(outgoing.path(), trust(key_table("a", key(1)), rule_table("a", bundle='"more"')), NOW)
    with pytest.raises(InputError, match="each name and target once"):
        push(at("localhost:1", "a/b:c"), packages(outgoing, GFX942, GFX942))
    with pytest.raises(InputError, match="a tag to push to, found a digest"):
        push(at("localhost:1", f"a/b@{Digest.of(b'')}"), packages(outgoing, GFX942))


def test_an_older_release_does_not_replace_a_newer_one(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    newer = outgoing.make(seed="newer", sequence=6)
    outgoing.into.mkdir()
    for path in (newer, signature_path(newer)):
        (outgoing.into / path.name).write_bytes(path.read_bytes())
    with pytest.raises(TrustError, match="sequence: expected at least 6, found 5, an older release"):
        pulled()
    assert (outgoing.into / newer.name).read_bytes() == newer.read_bytes()
    assert pulled(older=True).changed
    assert Bundle.open(outgoing.into / newer.name).manifest.toolchain == {"triton": "one"}


def test_a_bundle_in_place_that_nobody_signed_holds_nothing_up(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    outgoing.into.mkdir()
    (outgoing.into / "pack.gfx942.aotk").write_bytes(bundle("whoever"))
    assert pulled().changed


def test_a_folder_that_cannot_be_made_is_named(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    outgoing.into.write_bytes(b"a file")
    with pytest.raises(InputError, match="a folder that can be made"):
        pulled()


# Locks, limits and full disks.

HOLD = """
import fcntl, sys, time
part = open(sys.argv[1], "ab")
fcntl.flock(part, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def holder(part: Path) -> subprocess.Popen[bytes]:
    """Another process that has the lock of a part."""
    part.parent.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(part)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_whoever_holds_a_part_is_waited_for_and_a_dead_one_is_not(
    served: FakeRegistry, pulled: Callable[..., Pulled], outgoing: Outgoing
) -> None:
    digest = Digest.of(outgoing.path().read_bytes())
    process = holder(outgoing.into / f".pack.gfx942.aotk.{digest.short}.part")
    done: list[Pulled] = []
    thread = threading.Thread(target=lambda: done.append(pulled()))
    thread.start()
    thread.join(0.3)
    assert (thread.is_alive(), done) == (True, [])
    process.kill()
    thread.join(60)
    process.wait()
    assert [item.digest for item in done] == [digest]
    assert names(outgoing.into) == ["pack.gfx942.aotk", "pack.gfx942.aotk.sig"]


def test_a_disk_that_takes_no_more(served: FakeRegistry, fake: tuple[object, str], outgoing: Outgoing) -> None:
    """The limit on file sizes stands in for a full disk: writing fails in the middle."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));from aotkern.cli import main; main()"
    pull_it = (
        "pull",
        f"{fake[1]}/team/pack:v1",
        "-t",
        "gfx942",
        "-o",
        str(outgoing.into),
        "--unsigned",
        "--plain-http",
    )
    done = subprocess.run([sys.executable, "-c", code, *pull_it], capture_output=True, text=True, check=False)
    assert (done.returncode, "File too large" in done.stderr) == (2, True), done.stderr
    assert [name for name in names(outgoing.into) if not name.endswith(".part")] == []


def test_an_older_release_is_refused_though_the_delivered_files_are_gone(host: str, outgoing: Outgoing) -> None:
    memory = Memory(outgoing.folder / "state" / "accepted.json")
    remote = at(host, "flow/rollback:v1")
    outgoing.make(sequence=3)
    push(remote, packages(outgoing, GFX942))
    old = pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW, memory=memory)
    outgoing.make(GFX942, "pack", "newer", 7)
    push(remote, packages(outgoing, GFX942))
    pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW, memory=memory)
    # Whoever can write the folder takes both files away and delivers the older release.
    for path in outgoing.into.iterdir():
        path.unlink()
    outgoing.make(sequence=3)
    push(remote, packages(outgoing, GFX942))
    with pytest.raises(TrustError, match="at least 7, found 3, an older release"):
        pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW, memory=memory)
    assert not old.path.exists()
    assert pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW, memory=memory, older=True).changed
