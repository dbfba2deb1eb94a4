import errno
import gc
import hashlib
import importlib
import os
import pickle
import random
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from making import GFX942, GFX950, hand_made, packed
from mutations import in_time

from aotkern import bundle as module
from aotkern import codeobject
from aotkern.bundle import MAGIC, VERSION, Bundle, encode, publish, write
from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import AotkernError, InputError, IntegrityError, Problem
from aotkern.manifest import Manifest

PREFIX = struct.Struct("<8sII32s")


def opened_and_verified(data):
    """The bundle, if nothing is wrong with it."""
    bundle = Bundle.decode(data, "b.aotk")
    bundle.verify()
    return bundle


def refused(data, *, verify=False):
    """The one message by which a bundle is refused."""
    with pytest.raises(IntegrityError) as error:
        opened_and_verified(data) if verify else Bundle.decode(data, "b.aotk")
    assert all(problem.where.startswith("b.aotk") for problem in error.value.problems)
    return str(error.value)


def framed(content):
    return zstandard.ZstdCompressor(level=3, write_content_size=True).compress(content)


def assembled(text, blocks, counts, *, header=None, version=VERSION):
    """A bundle with right hashes over whatever parts: what somebody who can forge everything would write.

    `text` and `blocks` are `(frame, declared size)`; `header` changes the header's value.
    """
    rows = [
        [len(frame), size, str(Digest.of(frame)), count]
        for (frame, size), count in zip((text, *blocks), (0, *counts), strict=True)
    ]
    value = {"manifest": rows[0], "blocks": rows[1:], "provenance": {}}
    if header:
        header(value)
    raw = dumps(value).encode()
    prefix = PREFIX.pack(MAGIC, version, len(raw), hashlib.sha256(raw).digest())
    return b"".join([prefix, raw, text[0], *(frame for frame, _ in blocks)])


def forged(manifest, contents, counts, **more):
    """As `assembled`, from a manifest and the content of each block."""
    text = manifest if isinstance(manifest, bytes) else manifest.to_bytes()
    blocks = [(framed(content), len(content)) for content in contents]
    return assembled((framed(text), len(text)), blocks, counts, **more)


@pytest.fixture
def parts(sample):
    """Manifest and objects of the gfx950 sample, in the order of the manifest."""
    build = sample.build(GFX950)
    return build.manifest, [build.objects[entry.digest] for entry in build.manifest.objects]


def test_a_bundle_gives_back_what_was_put_in(sample):
    for target in (GFX942, GFX950):
        build, bundle = sample.build(target), sample.bundle(target)
        bundle.verify()
        assert bundle.manifest == build.manifest
        assert {digest: bundle.object(digest) for digest in build.objects} == dict(build.objects)
        assert bundle.digest == Digest.of(bundle.data)


def test_equal_content_makes_equal_bytes(sample):
    build = sample.build(GFX942)
    again = encode(build.manifest, dict(reversed(build.objects.items())), {})
    assert again == sample.bundle(GFX942).data


def test_provenance_is_kept_beside_the_content(sample):
    build = sample.build(GFX942)
    said = Bundle.decode(encode(build.manifest, build.objects, {"revision": "abc"}), "x")
    assert said.provenance == {"revision": "abc"}
    assert said.manifest.digest == sample.bundle(GFX942).manifest.digest


def test_kernels_have_blocks_of_their_own_and_share_objects(sample):
    bundle = sample.bundle(GFX950)
    assert [block.objects for block in bundle.blocks] == [1, len(bundle.manifest.objects) - 1]


def test_an_empty_manifest_is_a_bundle_without_blocks():
    empty = Manifest.make(GFX942, {}, {}, (), {}, [])
    bundle = Bundle.decode(encode(empty, {}, {}), "x")
    bundle.verify()
    assert bundle.blocks == ()


def test_every_flipped_byte_is_refused(small_bundle):
    Bundle.decode(small_bundle, "b.aotk").verify()
    for place in range(len(small_bundle)):
        damaged = bytearray(small_bundle)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(IntegrityError, match=r"b\.aotk"):
            Bundle.decode(bytes(damaged), "b.aotk")


def test_every_cut_is_refused(small_bundle):
    for length in range(len(small_bundle)):
        with pytest.raises(IntegrityError, match=r"b\.aotk"):
            Bundle.decode(small_bundle[:length], "b.aotk")


def test_bytes_after_the_end_are_refused(small_bundle):
    expected = f"b.aotk: expected {len(small_bundle)} bytes, as the header says, found {len(small_bundle) + 1} bytes"
    assert refused(small_bundle + b"\0") == expected


def test_a_flip_is_named_by_its_place(small_bundle):
    flipped = small_bundle[:-1] + bytes([small_bundle[-1] ^ 1])
    assert refused(flipped).startswith("b.aotk: block 1 at byte ")


def test_random_damage_is_never_taken_for_content(small_bundle):
    """Ten thousand mutations, cuts and splices; the seed is fixed, so that a failure can be met again."""
    chance = random.Random(20_240_607)
    tried = 0
    while tried < 10_000:
        damaged = bytearray(small_bundle)
        for _ in range(chance.randint(1, 4)):
            start, length = chance.randrange(len(damaged)), chance.choice((1, 1, 1, 2, 4, 60))
            new = chance.choice((chance.randbytes(length), bytes(length), b"\xff" * length, b""))
            damaged[start : start + length] = new
            if not damaged:
                break
        if damaged != small_bundle:
            tried += 1
            with in_time(10), pytest.raises(IntegrityError, match=r"b\.aotk"):
                Bundle.decode(bytes(damaged), "b.aotk")


def test_a_forged_manifest_never_ends_in_another_error(sample):
    """Hashes are right and the manifest is not: mutations of its text, encoded anew."""
    build = sample.build(GFX942)
    text = build.manifest.to_bytes()
    contents = [b"".join(build.objects[entry.digest] for entry in build.manifest.objects)]
    chance = random.Random(7)
    for _ in range(1_500):
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 3)):
            start = chance.randrange(len(damaged))
            damaged[start : start + chance.choice((0, 1, 1, 5))] = chance.choice(
                (b"", b"9", b'"', b"[]", b"{}", b"null", b"-", b"\xc3", b"\\ud800", b"99999999999999", b"true")
            )
        if damaged == text:
            continue
        try:
            opened = Bundle.decode(forged(bytes(damaged), contents, [len(build.objects)]), "b.aotk")
            opened.verify()
        except IntegrityError:
            continue
        # What is left are other texts for people: versions, pinned variables, digests of sources.
        again = opened.manifest
        assert [v.object for v in again.variants] == [v.object for v in build.manifest.variants]
        assert [entry.code for entry in again.objects] == [entry.code for entry in build.manifest.objects]


def test_swapped_objects_are_refused(parts):
    manifest, objects = parts
    first, *rest = objects
    assert len({len(data) for data in objects}) > 1 or first != rest[0]
    data = forged(manifest, [b"".join(rest[::-1]) + first], [len(objects)])
    assert "expected sha256:" in refused(data, verify=True)


def test_an_object_of_another_chip_is_refused_by_its_elf(sample):
    old, new = sample.build(GFX942), sample.build(GFX950)
    entry = old.manifest.objects[0]
    lie = replace(new.manifest, objects=(entry, *new.manifest.objects[1:]))
    swapped = new.manifest.objects[0].digest
    lie = replace(
        lie, variants=tuple(replace(v, object=entry.digest) if v.object == swapped else v for v in lie.variants)
    )
    objects = [old.objects[entry.digest], *(new.objects[other.digest] for other in new.manifest.objects[1:])]
    assert "code for hip:gfx950, found hip:gfx942" in refused(forged(lie, objects, [1] * len(objects)), verify=True)
    # The manifest may lie about the chip too; the ELF does not.
    facts = {**entry.facts, "target": "hip:gfx950"}
    lie = replace(lie, objects=(replace(entry, facts=facts), *lie.objects[1:]))
    data = forged(lie, objects, [1] * len(objects))
    assert "an ELF for hip:gfx950, found one for hip:gfx942" in refused(data, verify=True)


def test_facts_that_the_elf_does_not_bear_out_are_refused(sample):
    build = sample.build(GFX942)
    entry = build.manifest.objects[0]
    facts = {**entry.facts, "resources": {**entry.facts["resources"], "vgprs": 1}}
    lie = replace(build.manifest, objects=(replace(entry, facts=facts), *build.manifest.objects[1:]))
    objects = [build.objects[other.digest] for other in lie.objects]
    assert "the facts that the manifest states, found resources" in refused(
        forged(lie, [b"".join(objects)], [len(objects)]), verify=True
    )


def test_what_was_read_of_one_bundle_is_not_read_again_and_hides_nothing_in_another(sample, monkeypatch):
    build = sample.build(GFX942)
    bundle = sample.bundle(GFX942)
    read, known = [], {}
    original = codeobject.read
    monkeypatch.setattr(codeobject, "read", lambda data, where: read.append(where) or original(data, where))
    bundle.verify(known)
    assert len(read) == len(build.objects) == len(known)
    bundle.verify(known)
    assert len(read) == len(build.objects)
    bundle.verify()
    assert len(read) == 2 * len(build.objects)
    # A manifest that lies about a code object that is known is refused all the same,
    entry = build.manifest.objects[0]
    facts = {**entry.facts, "resources": {**entry.facts["resources"], "vgprs": 1}}
    lie = replace(build.manifest, objects=(replace(entry, facts=facts), *build.manifest.objects[1:]))
    objects = [build.objects[other.digest] for other in lie.objects]
    with pytest.raises(IntegrityError, match="the facts that the manifest states, found resources"):
        Bundle.decode(forged(lie, objects, [1] * len(objects)), "b.aotk").verify(known)
    # and so are bytes that are not what their known digest says.
    other = [bytes([*data[:-1], data[-1] ^ 1]) for data in objects]
    with pytest.raises(IntegrityError, match="expected sha256"):
        Bundle.decode(forged(build.manifest, other, [1] * len(other)), "b.aotk").verify(known)


def test_an_object_that_is_no_elf_is_refused(sample):
    build = sample.build(GFX942)
    data = b"#!/bin/sh\n" * 40
    entries = (replace(build.manifest.objects[0], digest=Digest.of(data), size=len(data)),)
    variants = tuple(replace(v, object=entries[0].digest) for v in build.manifest.variants)
    lie = replace(build.manifest, objects=entries, variants=variants)
    assert f"object {entries[0].digest.short}" in refused(forged(lie, [data], [1]), verify=True)


def test_a_variant_whose_object_is_not_there_is_refused(parts):
    manifest, objects = parts
    last = replace(manifest.variants[-1], object=Digest.of(b"../../elsewhere"))
    lie = replace(manifest, variants=(*manifest.variants[:-1], last))
    assert "their objects in order of first use" in refused(forged(lie, objects, [1] * len(objects)), verify=True)


def test_an_object_that_the_bundle_lacks_cannot_be_asked_for(sample):
    with pytest.raises(InputError, match="the digest of one of its code objects"):
        sample.bundle(GFX942).object(Digest.of(b"elsewhere"))


@pytest.mark.parametrize("version", [0, 2, 0xFFFFFFFF])
def test_another_format_version_is_refused_by_number(parts, version):
    manifest, objects = parts
    data = forged(manifest, [b"".join(objects)], [len(objects)], version=version)
    assert refused(data) == f"b.aotk: byte 8: expected bundle format version 1, found version {version}"


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(60), b"PK\3\4" + bytes(60), b"{}" * 40], ids=repr)
def test_another_kind_of_file_is_refused(data):
    assert refused(data).startswith("b.aotk")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda h: h.update(more=1), "exactly the fields manifest, blocks, provenance"),
        (lambda h: h.pop("provenance"), "exactly the fields manifest, blocks, provenance"),
        (lambda h: h.update(manifest=[1, 2]), "exactly the fields 0, 1, 2, 3"),
        (lambda h: h.update(blocks={}), "a list of lists of 4"),
        (lambda h: h["blocks"][0].__setitem__(0, -1), "an integer from 0"),
        (lambda h: h["blocks"][0].__setitem__(0, h["blocks"][0][0] + 1), "bytes, as the header says"),
        (lambda h: h["blocks"][0].__setitem__(1, 5 << 30), "bytes of content"),
        (lambda h: h["blocks"][0].__setitem__(1, h["blocks"][0][1] - 1), "bytes of objects"),
        (lambda h: h["blocks"][0].__setitem__(2, "sha256:"), "'sha256:' and 64 lower-case hex digits"),
        (lambda h: h["blocks"][0].__setitem__(3, 1), "bytes of objects"),
        (lambda h: h["blocks"][0].__setitem__(3, 1 << 40), "objects"),
        (lambda h: h["manifest"].__setitem__(1, h["manifest"][1] + 1), "bytes of content"),
        (lambda h: h["manifest"].__setitem__(1, 3 << 30), "a manifest of at most"),
        (lambda h: h["manifest"].__setitem__(3, 1), "no objects in the manifest's row"),
        (lambda h: h.update(provenance={"a": 1}), "an object of texts"),
        (lambda h: h.update(blocks=[]), "bytes, as the header says"),
    ],
    ids=range(16),
)
def test_a_header_that_does_not_fit_is_refused(parts, change, expected):
    manifest, objects = parts
    assert expected in refused(forged(manifest, [b"".join(objects)], [len(objects)], header=change))


def test_a_frame_that_claims_another_size_is_refused(parts):
    manifest, objects = parts
    content = b"".join(objects)
    text = manifest.to_bytes()
    bomb = framed(bytes(len(content) + 50_000_000))
    data = assembled((framed(text), len(text)), [(bomb, len(content))], [len(objects)])
    assert f"expected {len(content)} bytes of content, found a frame of {len(content) + 50_000_000}" in refused(
        data, verify=True
    )


def test_a_frame_without_a_size_is_refused(parts):
    manifest, objects = parts
    content, text = b"".join(objects), manifest.to_bytes()
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    data = assembled((framed(text), len(text)), [(frame, len(content))], [len(objects)])
    assert "bytes of content" in refused(data, verify=True)


def test_a_second_frame_behind_the_first_is_refused(parts):
    manifest, objects = parts
    content, text = b"".join(objects), manifest.to_bytes()
    data = assembled((framed(text), len(text)), [(framed(content) + framed(b"more"), len(content))], [len(objects)])
    assert "a zstd frame" in refused(data, verify=True)


def test_content_beyond_the_cap_is_refused_before_it_is_made(parts, monkeypatch):
    monkeypatch.setattr(module, "MAX_CONTENT", 1_000)
    manifest, objects = parts
    assert "at most 1000 bytes of content" in refused(forged(manifest, [b"".join(objects)], [len(objects)]))


def test_a_file_beyond_the_cap_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE", 1_000)
    path = tmp_path / "huge.aotk"
    with path.open("wb") as file:
        file.truncate(1_001)
    with pytest.raises(IntegrityError, match=r"huge\.aotk: expected a bundle of at most 1000 bytes, found 1001 bytes"):
        Bundle.open(path)


def test_a_header_that_claims_a_gigabyte_is_refused():
    data = PREFIX.pack(MAGIC, VERSION, 1 << 30, bytes(32)) + b"{}"
    assert refused(data) == "b.aotk: byte 12: expected a header that fits in the file, found 1073741824 bytes"


def test_a_pickle_is_not_executed(parts):
    payload = b"cos\nsystem\n(S'exit 3'\ntR."
    assert "a JSON document" in refused(forged(payload, [b"".join(parts[1])], [len(parts[1])]))


def test_the_reading_path_holds_no_way_to_execute_anything():
    for name in ("bundle", "canonical", "fields", "manifest", "digest", "codeobject.elf", "codeobject.note"):
        text = Path(importlib.import_module(f"aotkern.{name}").__file__).read_text("utf-8")
        for word in ("pickle", "eval(", "exec(", "dlopen", "CDLL", "marshal", "subprocess"):
            assert word not in text, (name, word)


# Writing.


def test_what_was_written_can_be_opened(sample, tmp_path):
    build = sample.build(GFX942)
    path = tmp_path / "deep" / "x.aotk"
    digest = write(path, build.manifest, build.objects, {})
    assert Bundle.open(path).digest == digest
    assert [file.name for file in path.parent.iterdir()] == ["x.aotk"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_nothing_is_published_that_does_not_verify(sample, tmp_path):
    build = sample.build(GFX942)
    digests = list(build.objects)
    wrong = dict(zip(digests, reversed(build.objects.values()), strict=True))
    path = tmp_path / "x.aotk"
    path.write_bytes(b"what was there before")
    if len(digests) > 1:
        with pytest.raises(IntegrityError):
            write(path, build.manifest, wrong, {})
    with pytest.raises(IntegrityError, match="an object for every variant"):
        write(path, build.manifest, {}, {})
    with pytest.raises(IntegrityError):
        write(path, hand_made(), {entry.digest: b"x" * entry.size for entry in hand_made().objects}, {})
    assert path.read_bytes() == b"what was there before"
    assert [file.name for file in tmp_path.iterdir()] == ["x.aotk"]


def test_a_bundle_that_is_not_there_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"gone\.aotk: expected a bundle that can be read, found No such file"):
        Bundle.open(tmp_path / "gone.aotk")
    with pytest.raises(InputError, match="found a folder"):
        Bundle.open(tmp_path)


def test_publishing_replaces_a_link_and_does_not_write_through_it(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    link = tmp_path / "x.aotk"
    link.symlink_to(outside)
    publish(link, b"new")
    assert outside.read_bytes() == b"precious"
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"


def test_publishing_leaves_what_a_hard_link_shares_alone(tmp_path):
    """As in a folder that everybody may write: whoever put the link there keeps the old bytes, readers get the new."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    outside, link = tmp_path / "outside", folder / "x.aotk"
    outside.write_bytes(b"precious")
    link.hardlink_to(outside)
    publish(link, b"new")
    assert (outside.read_bytes(), link.read_bytes()) == (b"precious", b"new")
    assert not link.samefile(outside)


def test_a_link_planted_under_the_name_of_a_temporary_file_is_not_followed(tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    names = iter(["guessed", "fresh"])
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: names)
    (tmp_path / ".x.aotk.guessed.tmp").symlink_to(outside)
    publish(tmp_path / "x.aotk", b"new")
    assert outside.read_bytes() == b"precious"
    assert (tmp_path / "x.aotk").read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "fdopen", "replace"])
def test_an_error_while_writing_leaves_nothing_behind(tmp_path, monkeypatch, step):
    path = tmp_path / "x.aotk"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    if step == "replace":
        monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        publish(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x.aotk"]


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this container may not mount: {mounted.stderr.decode().strip()}")
    try:
        publish(tmp_path / "small", b"fits")
        with pytest.raises(OSError, match="No space left"):
            publish(tmp_path / "large", bytes(1 << 20))
        assert [file.name for file in tmp_path.iterdir()] == ["small"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_every_refusal_is_of_the_family(small_bundle):
    for data in (b"", small_bundle[:50], small_bundle + b"x"):
        with pytest.raises(AotkernError):
            Bundle.decode(data, "x")


READER = """
import sys
from aotkern.bundle import Bundle
bundle = Bundle.open(sys.argv[1])
objects = [bundle.object(entry.digest) for entry in bundle.manifest.objects]
print(len(objects), flush=True)
sys.stdin.readline()
"""


def test_eight_processes_read_one_file_take_no_lock_and_write_nothing(small_bundle, tmp_path):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(small_bundle)
    path.chmod(0o444)
    before = (path.stat().st_mtime_ns, tmp_path.stat().st_mtime_ns, os.listdir(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1]), "HOME": "/nowhere"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", READER, str(path)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(8)
    ]  # fmt: skip
    try:
        assert all(int(rank.stdout.readline()) > 0 for rank in ranks)
        inode = path.stat().st_ino
        for rank in ranks:
            links = [str(link.readlink()) for link in Path(f"/proc/{rank.pid}/fd").iterdir()]
            assert links.count(str(path)) == 1
        assert not [line for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]
    finally:
        for rank in ranks:
            rank.communicate("\n")
    assert [rank.returncode for rank in ranks] == [0] * 8
    assert (path.stat().st_mtime_ns, tmp_path.stat().st_mtime_ns, os.listdir(tmp_path)) == before


def test_a_file_that_changes_after_it_was_opened_is_refused(small_bundle, tmp_path):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(small_bundle)
    bundle = Bundle.open(path)
    with path.open("r+b") as file:  # in place: the next read sees it
        file.seek(len(small_bundle) - 40)
        file.write(b"\xff" * 8)
    assert bundle.digest != Digest.of(small_bundle)
    with pytest.raises(IntegrityError, match=r"as when it was opened, found .*: the file changed"):
        bundle.object(bundle.manifest.objects[-1].digest)


def test_a_changed_head_leaves_the_opened_manifest_as_it_was(small_bundle, tmp_path):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(small_bundle)
    bundle = Bundle.open(path)
    with path.open("r+b") as file:
        file.write(b"\xff" * 64)
    assert bundle.digest == Digest.of(small_bundle)
    assert bundle.content == small_bundle


@pytest.mark.parametrize("left", [0, 1, 100, -1])
def test_a_file_that_is_cut_in_place_is_refused_and_ends_no_process(small_bundle, tmp_path, left):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(small_bundle)
    bundle = Bundle.open(path)
    os.truncate(path, left % len(small_bundle))
    with pytest.raises(IntegrityError, match=r"as when it was opened, found its end at byte .*: the file changed"):
        bundle.object(bundle.manifest.objects[-1].digest)
    with pytest.raises(IntegrityError, match="the file changed"):
        bundle.digest  # noqa: B018 - it reads the file
    path.write_bytes(small_bundle)
    assert bundle.object(bundle.manifest.objects[-1].digest)


def test_copying_bundles_over_each_other_never_ends_a_reader(sample, tmp_path):
    """`cp` over a live file: each reader gets all of one bundle, or the one error."""
    one, two = (packed(sample.build(GFX942), {"built": text}) for text in ("once", "again" * 1000))
    path, outcomes = tmp_path / "b.aotk", []
    path.write_bytes(one)
    for turn in range(60):
        bundle = None
        try:
            bundle = Bundle.open(path)
            path.write_bytes((one, two, one[: turn * 30])[turn % 3])
            bundle.verify()
            outcomes.append("read")
        except IntegrityError:
            outcomes.append("refused")
    assert {"refused", "read"} >= set(outcomes)
    assert "refused" in outcomes


def test_what_is_no_file_is_bad_input_and_waits_for_nothing(tmp_path):
    os.mkfifo(tmp_path / "b.gfx942.aotk")
    for path, words in ((tmp_path / "b.gfx942.aotk", "a pipe"), (tmp_path, "a folder"), ("b\0.aotk", "null byte")):
        with pytest.raises(InputError, match=words):
            Bundle.open(path)
    (tmp_path / "empty.aotk").write_bytes(b"")
    with pytest.raises(IntegrityError, match="at least 48 bytes, found 0"):
        Bundle.open(tmp_path / "empty.aotk")


def test_a_dropped_bundle_closes_its_file(small_bundle, tmp_path):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(small_bundle)
    bundles = [Bundle.open(path) for _ in range(50)]

    def opened():
        links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sum(link.is_symlink() and str(link.readlink()) == str(path) for link in links)

    assert opened() == 50
    bundles.clear()
    gc.collect()
    assert opened() == 0


COST = """
import sys, time
from aotkern.bundle import Bundle
from aotkern.errors import IntegrityError
def peak():  # megabytes, of this process alone: what getrusage says may be its parent's
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024
started = time.process_time()
try:
    Bundle.open(sys.argv[1]).verify()
except IntegrityError as error:
    print(len(str(error)), peak(), time.process_time() - started)
"""


def bomb(text: bytes, blocks=(), counts=()) -> bytes:
    return assembled((framed(text), len(text)), [(framed(block), len(block)) for block in blocks], counts)


def rows(field: str, row: bytes, count: int) -> bytes:
    """A manifest with a list of `count` rows in place of one of its own."""
    text = hand_made().to_bytes()
    start = text.index(f'"{field}":['.encode())
    end = text.index(b"\n]", start) if b"\n]" in text[start:] else text.index(b"]", start)
    return text[:start] + f'"{field}":['.encode() + b",".join([row] * count) + b"]" + text[end + 2 :]


HOSTILE = {
    "objects with an empty list": lambda: bomb(b"[" + b'{"":[]},' * 3_000_000 + b"{}]"),
    "lists": lambda: bomb(b"[" + b"[]," * 5_000_000 + b"0]"),
    "many small texts": lambda: bomb(b"[" + b",".join(b'"%x"' % n for n in range(250_000)) + b"]"),
    "numbers as variants": lambda: bomb(rows("variants", b"0", 400_000)),
    "numbers as objects": lambda: bomb(rows("objects", b"0", 400_000)),
    "numbers as kernels": lambda: bomb(rows("kernels", b"0", 400_000)),
    "one empty variant after the other": lambda: bomb(rows("variants", b"{}", 60_000)),
    "nested lists": lambda: bomb(b"[" * 500_000 + b"]" * 500_000),
    "a block of zeros": lambda: bomb(hand_made().to_bytes(), [bytes(300 << 20)], [2]),
    "as many zeros as are let through": lambda: bomb(hand_made().to_bytes(), [bytes(15 << 20)], [2]),
    "a header of objects": lambda: assembled(
        (framed(b"{}"), 2), [], [], header=lambda value: value.update(blocks=[0] * 40_000)
    ),
    "many keys": lambda: bomb(b"{" + b",".join(b'"%x":0' % n for n in range(250_000)) + b"}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_small_hostile_file_is_refused_at_little_cost(tmp_path, name):
    path = tmp_path / "b.gfx942.aotk"
    path.write_bytes(HOSTILE[name]())
    done = subprocess.run(
        [sys.executable, "-c", COST, str(path)],
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said, megabytes, seconds = done.stdout.split()
    assert int(said) < 60_000
    assert int(megabytes) < 200
    assert float(seconds) < 5


def test_of_many_problems_the_first_hundred_are_told():
    error = IntegrityError(Problem(f"row {n}", "a", "b") for n in range(10**9))
    assert len(error.problems) == 101
    assert str(error).endswith("and more: expected at most 100 problems, found others, which are not listed")
    assert pickle.loads(pickle.dumps(error)).problems == error.problems
    assert len(IntegrityError(Problem(f"row {n}", "a", "b") for n in range(100)).problems) == 100


def test_files_keep_to_the_umask_and_leave_nothing_beside_them(tmp_path):
    from aotkern.bundle import publish

    before = os.umask(0o077)
    try:
        publish(tmp_path / "private", b"x")
        os.umask(0o022)
        publish(tmp_path / "public", b"x")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"private": 0o600, "public": 0o644}
