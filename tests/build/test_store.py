import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("triton")

from making import GFX942, SINGLE, Answer, built, packed, request, written

from aotkern.build import store as module
from aotkern.build.builder import compile_targets
from aotkern.build.builder import publish as publish_bundle
from aotkern.build.store import Store
from aotkern.bundle import Bundle, publish
from aotkern.digest import Digest

CONTENT = Digest.of(b"content")
FACTS = {"digest": str(Digest.of(b"data\n\0more")), "size": 10, "code": {}, "launch": {}, "microseconds": 1}


@pytest.fixture
def kept(tmp_path):
    """A store with one entry, and the file of that entry."""
    store = Store(tmp_path / "store")
    store.put(CONTENT, FACTS, b"data\n\0more")
    (path,) = store.root.glob("??/*")
    return store, path


def test_what_was_kept_comes_back(kept):
    store, path = kept
    entry = store.get(CONTENT)
    assert entry.data == b"data\n\0more"
    assert FACTS.items() <= entry.facts.items()
    assert path.name == CONTENT.hex
    assert store.problem == ""


def test_what_was_never_kept_is_absent(kept):
    assert kept[0].get(Digest.of(b"else")) is None
    assert Store(kept[1] / "nowhere").get(CONTENT) is None


def test_every_flipped_byte_and_every_cut_make_an_entry_absent(kept):
    store, path = kept
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert store.get(CONTENT) is None
        path.write_bytes(whole[:place])
        assert store.get(CONTENT) is None
    path.write_bytes(whole + b"x")
    assert store.get(CONTENT) is None


def test_an_entry_under_another_name_is_absent(kept):
    store, path = kept
    other = Digest.of(b"else")
    (store.root / other.hex[:2]).mkdir(exist_ok=True)
    (store.root / other.hex[:2] / other.hex).write_bytes(path.read_bytes())
    assert store.get(other) is None


@pytest.mark.parametrize("head", [b"{}", b"[]", b"null", b"{", b'{"digest":1}'], ids=repr)
def test_an_entry_whose_facts_are_others_is_absent(kept, head):
    store, path = kept
    body = head + b"\ndata\n\0more"
    path.write_bytes(str(Digest.of(body)).encode() + b"\n" + body)
    assert store.get(CONTENT) is None


def test_an_entry_of_another_aotkern_is_absent(kept, monkeypatch):
    monkeypatch.setattr(module, "_LAYOUT", "other,fields")
    assert kept[0].get(CONTENT) is None


def test_a_full_disk_is_noted_and_leaves_nothing(kept, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store, path = kept
    monkeypatch.setattr(os, "fdopen", full)
    store.put(Digest.of(b"else"), FACTS, b"data")
    assert store.problem.endswith("No space left on device")
    assert [file for file in store.root.rglob("*") if file.is_file() and file.name != "CACHEDIR.TAG"] == [path]


def test_trim_removes_the_oldest_above_the_cap(tmp_path):
    store = Store(tmp_path)
    for age, name in enumerate((b"new", b"middle", b"old")):
        store.put(Digest.of(name), FACTS, bytes(1000))
        os.utime(store._path(Digest.of(name)), (2e9 - age, 2e9 - age))
    size = store._path(Digest.of(b"new")).stat().st_size
    store.trim(3 * size)
    assert len(list(store.entries())) == 3
    store.trim(2 * size)
    assert [store._path(Digest.of(name)).exists() for name in (b"new", b"middle", b"old")] == [True, True, False]


def test_trim_removes_what_killed_writers_left(kept):
    store, path = kept
    stale, fresh = (path.with_name(f".{path.name}.{n}.tmp") for n in "12")
    stale.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(stale, (1e9, 1e9))
    store.trim()
    assert (stale.exists(), fresh.exists(), path.exists()) == (False, True, True)


# What is not the store's.


@pytest.fixture
def crowded(tmp_path):
    """A cache folder with things of others, all larger and older than what a store keeps; the store and their names."""
    store = Store(tmp_path)
    names = ["go/thesis.txt", "ML/model.bin", "ab/notes", f"ab/{'0' * 64}", "toolchain", "CACHEDIR.TAG"]
    own = store.root.relative_to(tmp_path)
    names += [
        f"{own}/{name}" for name in ("ab/notes", "abc/x", "zz/y", f"ab/{'0' * 63}g", "ab/.x.tmp", f"zz/{'z' * 64}")
    ]
    names += [f"{own}/ab/{'cd' * 32}", f"{own}/notes"]  # an entry stands in the folder of its first two letters
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(5000))
        os.utime(path, (1e9, 1e9))
    (store.root / "ef").symlink_to(tmp_path / "go")
    (store.root / "ab" / f"ab{'1' * 62}").symlink_to(tmp_path / "toolchain")
    return store, {name: (tmp_path / name).stat().st_ino for name in names}


def test_trimming_and_clearing_touch_nothing_of_others(crowded, tmp_path):
    store, names = crowded
    store.put(CONTENT, FACTS, b"data\n\0more")
    assert [path.name for path, _ in store.entries()] == [CONTENT.hex]
    store.trim(0)
    assert list(store.entries()) == []
    store.put(CONTENT, FACTS, b"data\n\0more")
    store.clear()
    assert list(store.entries()) == []
    assert {name: (tmp_path / name).stat().st_ino for name in names} == names
    assert (store.root / "ef").is_symlink()


def test_a_build_touches_nothing_of_others(crowded, source, tmp_path, monkeypatch):
    _, names = crowded
    monkeypatch.setattr(Store, "trim", lambda store, real=Store.trim: real(store, 0))
    result = compile_targets(request(source, store=tmp_path))
    assert (result.store_problem, len(result.seconds)) == ("", 1)
    assert {name: (tmp_path / name).stat().st_ino for name in names} == names


def test_the_store_is_tagged_as_a_cache(kept):
    text = (kept[0].root / "CACHEDIR.TAG").read_text()
    assert text.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


# What others could have written.


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_store_that_others_may_write_is_neither_read_nor_written(kept, mode):
    store, path = kept
    store.root.chmod(mode)
    again = Store(store.cache)
    assert again.problem.endswith(f"not used, because others could write it (owner {os.geteuid()}, mode {mode:04o})")
    assert again.get(CONTENT) is None
    again.put(Digest.of(b"else"), FACTS, b"data\n\0more")
    assert [entry for entry, _ in again.entries()] == [path]


def test_a_store_of_another_user_is_not_used(kept):
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    store, _ = kept
    os.chown(store.root, 12345, -1)
    assert "owner 12345" in Store(store.cache).problem
    assert Store(store.cache).get(CONTENT) is None


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_an_entry_that_others_may_write_is_absent(kept, mode):
    store, path = kept
    path.chmod(mode)
    assert store.get(CONTENT) is None


def test_an_entry_of_another_user_is_absent(kept):
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    store, path = kept
    os.chown(path, 12345, -1)
    assert store.get(CONTENT) is None


def test_a_link_and_a_pipe_are_no_entries(kept, tmp_path):
    store, path = kept
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.get(CONTENT) is None
    path.unlink()
    os.mkfifo(path)
    assert store.get(CONTENT) is None


def test_a_store_is_made_for_its_user_alone_whatever_the_umask_says(tmp_path):
    before = os.umask(0)
    try:
        store = Store(tmp_path / "store")
        store.put(CONTENT, FACTS, b"data\n\0more")
    finally:
        os.umask(before)
    assert Store(tmp_path / "store").get(CONTENT) is not None
    assert Store(tmp_path / "store").problem == ""


def test_a_poisoned_shared_store_does_not_reach_a_build(source, tmp_path):
    root = tmp_path / "store"
    data = planted(source, root, tmp_path)
    (root / "aotkern-store").chmod(0o1777)
    result = compile_targets(request(source, store=root))
    assert (len(result.seconds), result.reused) == (1, 0)
    assert "others could write it" in result.store_problem
    assert data not in result.targets[GFX942].objects.values()


def test_many_threads_and_trims_at_once(tmp_path):
    stores = [Store(tmp_path) for _ in range(8)]

    def work(store, number):
        for round_ in range(30):
            content = Digest.of(f"{round_ % 5}".encode())
            store.put(content, FACTS, b"data\n\0more")
            entry = store.get(content)
            assert entry is None or entry.data == b"data\n\0more"
            if number == 0:
                store.trim(2000)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(stores, range(8), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.problem for store in stores] == [""] * 8
    assert not list(tmp_path.rglob("*.tmp"))


def _publishes(number, rounds, barrier, root, data):
    """One of several processes that fill the same empty folders at the same moment."""
    for round_ in range(rounds):
        folder = root / str(round_)
        (folder / "out").mkdir(parents=True, exist_ok=True)
        barrier.wait(60)
        store = Store(folder / "store")
        store.put(CONTENT, FACTS, b"data\n\0more")
        publish(folder / "out" / "x.aotk", data)
        entry = store.get(CONTENT)
        assert entry is not None
        assert entry.data == b"data\n\0more"
        assert store.problem == ""
        Bundle.open(folder / "out" / "x.aotk").verify()


def test_eight_processes_fill_one_empty_folder_fifty_times(small_bundle, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(8)
    jobs = [context.Process(target=_publishes, args=(n, 50, barrier, tmp_path, small_bundle)) for n in range(8)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120)
    assert [job.exitcode for job in jobs] == [0] * 8
    for round_ in range(50):
        files = [path.name for path in (tmp_path / str(round_)).rglob("*") if path.is_file()]
        assert len(files) == 3, files
        assert (tmp_path / str(round_) / "out" / "x.aotk").read_bytes() == small_bundle


# With builds.


@pytest.fixture
def source(tmp_path):
    return written(tmp_path / "source", SINGLE)


def test_a_relative_store_keeps_its_memo(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compile_targets(request(source, store=Path("relative")))
    names = sorted(path.name for path in (tmp_path / "relative" / "aotkern-store").iterdir() if len(path.name) > 2)
    assert names == ["CACHEDIR.TAG", "toolchain"]


def test_a_bundle_says_how_many_of_its_variants_came_from_the_store(source, tmp_path):
    def build(name, **more):
        result = compile_targets(request(source, **more)).targets[GFX942]
        return result, publish_bundle(result, tmp_path / name, "x", {})

    _, fresh = build("fresh")
    assert Bundle.open(fresh.path).provenance["reused"] == "0 of 1"
    first, _ = build("out", store=tmp_path / "store")
    again, published = build("again", store=tmp_path / "store")
    assert Bundle.open(published.path).provenance["reused"] == "1 of 1"
    # A bundle that says less of it stays; one that says more is replaced.
    assert publish_bundle(again, tmp_path / "fresh", "x", {}).changed is False
    assert Bundle.open(fresh.path).provenance["reused"] == "0 of 1"
    assert publish_bundle(first, tmp_path / "again", "x", {}).changed is True
    assert Bundle.open(published.path).provenance["reused"] == "0 of 1"


def test_what_is_unchanged_is_not_compiled_again(source, tmp_path):
    first = compile_targets(request(source, store=tmp_path / "store"))
    again = compile_targets(request(source, store=tmp_path / "store"))
    assert (len(first.seconds), first.reused, len(again.seconds), again.reused) == (1, 0, 0, 1)
    assert packed(first.targets[GFX942]) == packed(again.targets[GFX942])
    assert packed(built(source).targets[GFX942]) == packed(again.targets[GFX942])


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[: len(raw) // 2], lambda raw: raw[:-1] + b"\xff"])
def test_a_damaged_entry_is_compiled_anew_and_healed(source, tmp_path, damage):
    root = tmp_path / "store"
    first = compile_targets(request(source, store=root))
    (path,) = root.glob("aotkern-store/??/*")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = compile_targets(request(source, store=root))
    assert (len(again.seconds), again.reused) == (1, 0)
    assert packed(first.targets[GFX942]) == packed(again.targets[GFX942])
    assert Store(root).get(Digest(path.name)) is not None


def command(*arguments, before=(), **environment):
    done = subprocess.run(
        [*before, sys.executable, "-m", "aotkern", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def test_a_store_that_cannot_be_written_makes_builds_slower_and_not_wrong(source, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    root = tmp_path / "store"
    compile_targets(request(source, store=root))
    for path in [tmp_path, *tmp_path.parents, *tmp_path.rglob("*")]:
        if path.is_relative_to(tmp_path.parents[1]):
            path.chmod(0o755 if path.is_dir() else 0o644)
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    probe = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    if subprocess.run([*before, sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("another user may not run this Python installation")
    reused = command(
        "build", source.path, "-t", "gfx942", "-j1", "-o", out, "--json", before=before, AOTKERN_CACHE=str(root)
    )
    document = reused.json("build")
    assert (document["reused"], document["store_problem"]) == (1, None)
    empty = tmp_path / "nothing"
    empty.mkdir()
    made = command(
        "build", source.path, "-t", "gfx942", "-j1", "-o", out, "--json", before=before, AOTKERN_CACHE=str(empty)
    )
    document = made.json("build")
    assert document["compiled"] == 1
    assert document["store_problem"].endswith("Permission denied")
    assert document["bundles"][0]["changed"] is False
    assert list(empty.iterdir()) == []


def test_a_store_that_cannot_be_made_is_noted_and_the_build_goes_on(source, tmp_path):
    (tmp_path / "file").write_text("")
    result = compile_targets(request(source, store=tmp_path / "file" / "store"))
    assert result.store_problem.endswith("Not a directory")
    assert packed(result.targets[GFX942]) == packed(built(source).targets[GFX942])


def as_nobody(work):
    """Run `work` in a child of this process that has given up root; its exit code."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(work())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_store_of_somebody_else_is_read_and_not_written(kept, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    store, path = kept
    for folder in path.parents:  # how many of them are pytest's depends on whether it runs in parallel
        if folder.owner() == "root" and "pytest" in str(folder):
            folder.chmod(0o755)
    before = sorted(store.root.rglob("*"))

    def work():
        read = store.get(CONTENT) is not None
        store.put(Digest.of(b"else"), FACTS, b"data")
        store.trim(0)
        return 0 if read and store.problem.endswith("Permission denied") else 1

    assert as_nobody(work) == 0
    assert sorted(store.root.rglob("*")) == before


def test_eight_builds_share_one_empty_folder(source, tmp_path):
    arguments = ["build", source.path, "-t", "gfx942", "-j1", "-o", tmp_path / "out", "--json"]
    answers = []

    def one():
        answers.append(command(*arguments, AOTKERN_CACHE=str(tmp_path / "store")))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    documents = [answer.json("build") for answer in answers]
    assert len({row["digest"] for document in documents for row in document["bundles"]}) == 1
    assert {document["store_problem"] for document in documents} == {None}
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["kernels_here.gfx942.aotk"]
    assert not list((tmp_path / "store").rglob("*.tmp"))
    assert len(list((tmp_path / "store").glob("aotkern-store/??/*"))) == 1
    Bundle.open(tmp_path / "out" / "kernels_here.gfx942.aotk").verify()


SLOW = """\
import pathlib
import time

if pathlib.Path(__file__).with_name("slow").exists():
    pathlib.Path(__file__).with_name("begun").touch()
    time.sleep(60)
"""


def test_a_builder_that_is_killed_holds_nobody_up(tmp_path):
    source = written(tmp_path / "source", SLOW + SINGLE)
    slow, begun = source.path.with_name("slow"), source.path.with_name("begun")
    slow.touch()
    arguments = ["build", source.path, "-t", "gfx942", "-j1", "-o", tmp_path / "out", "--json"]
    environment = {**os.environ, "AOTKERN_CACHE": str(tmp_path / "store")}
    command_line = [sys.executable, "-m", "aotkern", *map(str, arguments)]
    killed = subprocess.Popen(command_line, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    slow.unlink()
    started = time.monotonic()
    answer = command(*arguments, AOTKERN_CACHE=str(tmp_path / "store"))
    assert answer.json("build")["failures"] == []
    assert time.monotonic() - started < 50
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["kernels_here.gfx942.aotk"]


def planted(source, root, tmp_path):
    """Put the code of another kernel under the right key into a store."""
    compile_targets(request(source, store=root))
    other = built(written(tmp_path / "other", SINGLE.replace('"V": 1.0', '"V": 2.0'))).targets[GFX942]
    (data,) = other.objects.values()
    (path,) = root.glob("aotkern-store/??/*")
    facts = json.loads(path.read_bytes().split(b"\n", 2)[1])
    entry = other.manifest.objects[0]
    facts = {**facts, "digest": str(entry.digest), "size": entry.size, "code": dict(entry.facts)}
    del facts["content"], facts["layout"]
    Store(root).put(Digest(path.name), facts, data)
    return data


def test_a_planted_binary_never_passes_an_audit(source, tmp_path):
    root = tmp_path / "store"
    honest = packed(built(source).targets[GFX942])
    golden = tmp_path / "golden.json"
    golden.write_bytes(Bundle.decode(honest, "x").manifest.to_bytes())
    data = planted(source, root, tmp_path)
    environment = {"AOTKERN_CACHE": str(root)}
    # The build trusts the store...
    poisoned = tmp_path / "out" / "kernels_here.gfx942.aotk"
    assert command("build", source.path, "-t", "gfx942", "-j1", "-o", poisoned.parent, **environment).code == 0
    assert data in [Bundle.open(poisoned).object(entry.digest) for entry in Bundle.open(poisoned).manifest.objects]
    # ... the audit compiles anew and sees that today's sources are still what the baseline was ...
    fresh = command("audit", "identity", source.path, "-t", "gfx942", "--baseline", golden, "--json", **environment)
    assert fresh.json("audit")["reports"][0]["counts"] == {"identical": 1}
    # ... and that the bundle is not.
    judged = command(
        "audit", "identity", "-t", "gfx942", "--baseline", golden, "--bundle", poisoned, "--json", **environment
    )
    assert judged.json("audit", 1)["reports"][0]["counts"] == {"different": 1}
    built_from_it = command("diff", golden, poisoned, **environment)
    assert built_from_it.code == 1
