"""What a deployment decides at run time: which names mean what, whose files are used, which binaries are out of service."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
from bundles import Spec, make
from conftest import SPECS
from test_choosing import driver

import aotkern
from aotkern.arguments import Pointer
from aotkern.deny import Deny
from aotkern.errors import InputError, MissError, TargetError, TrustError
from aotkern.loader import LoadedBundles, discovery, owners
from aotkern.target import Target

X, OUT = Pointer(4096, "fp32", 64), Pointer(8192, "fp32", 64)


@pytest.fixture(scope="session")
def other(compile_kernel) -> bytes:
    return make(compile_kernel, "gfx950", (Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),))


def provide(site: Path, distribution: str, name: str, package: str | None, **bundles: bytes) -> None:
    """Install a distribution that provides a name; no package where that is None."""
    if package:
        (site / package).mkdir(parents=True, exist_ok=True)
        (site / package / "__init__.py").write_text(f"raise SystemExit('{package} was imported')")
        for target, data in bundles.items():
            (site / package / f"{name}.{target}.aotk").write_bytes(data)
    info = site / f"{distribution}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{discovery.GROUP}]\n{name} = {package or distribution + '_mod'}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    place, here = tmp_path / "site", tmp_path / "here"
    place.mkdir()
    here.mkdir()
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(here)
    return place


def where(name) -> list[str]:
    return [item.where for item in discovery.find(name, ())]


@pytest.mark.parametrize("content", ["empty", "another bundle", "a module"])
def test_a_folder_takes_no_installed_names_place(site, data, other, content, monkeypatch):
    provide(site, "kernels-dist", "decode", "decode_package", gfx942=data)
    for folder in (Path("decode"), Path("decode_package")):
        folder.mkdir()
        if content == "another bundle":
            (folder / "decode.gfx942.aotk").write_bytes(other)
        elif content == "a module":
            (folder / "__init__.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert where("decode") == ["decode_package/decode.gfx942.aotk"]
    assert str(aotkern.load("decode", driver=driver("gfx942")).manifest.target) == "hip:gfx942"
    assert [item.where for item in discovery.known(())[0]] == ["decode_package/decode.gfx942.aotk"]


def test_a_folder_that_is_written_as_one_is_one(site, data, other):
    provide(site, "kernels-dist", "decode", "decode_package", gfx942=data)
    Path("decode").mkdir()
    Path("decode/decode.gfx950.aotk").write_bytes(other)
    for written in ("./decode", Path("decode"), str(Path("decode").resolve())):
        assert len(where(written)) == 1
        assert where(written)[0].endswith("decode/decode.gfx950.aotk")


def test_a_name_that_is_installed_nowhere_may_be_a_folder(site, other):
    Path("decode").mkdir()
    assert where("decode") == []
    Path("decode/x.gfx950.aotk").write_bytes(other)
    assert where("decode")[0].endswith("decode/x.gfx950.aotk")


def test_a_part_of_a_package_is_found_without_importing_it(site, data):
    provide(site, "kernels-dist", "decode", "pkgx", gfx942=data)
    (site / "pkgx" / "sub").mkdir()
    (site / "pkgx" / "sub" / "y.gfx942.aotk").write_bytes(data)
    assert where("pkgx.sub") == ["pkgx.sub/y.gfx942.aotk"]


def test_two_providers_of_a_name_are_an_error_unless_their_targets_differ(site, data, other):
    provide(site, "first-dist", "decode", "first_package", gfx942=data)
    provide(site, "second-dist", "decode", "second_package", gfx950=other)
    assert where("decode") == ["first_package/decode.gfx942.aotk", "second_package/decode.gfx950.aotk"]
    provide(site, "third-dist", "decode", "third_package", **{"other-name": data})
    with pytest.raises(
        InputError, match=r"one installed distribution .* found first-dist 1 and third-dist 1 for hip:gfx942"
    ):
        aotkern.load("decode", driver=driver("gfx942"))
    found, broken = discovery.known(())
    assert (len(found), [name for name, _ in broken]) == (0, ["decode"])


def test_a_file_hides_those_of_its_name_in_later_folders(tmp_path, data, other):
    for name, content in (("a", data), ("b", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.gfx942.aotk").write_bytes(content)
    (found,) = discovery.find("k", (tmp_path / "a", tmp_path / "b"))
    assert found.where == str(tmp_path / "a" / "k.gfx942.aotk")


def test_doctor_survives_broken_packages(site, data, aotkern):
    provide(site, "good-dist", "good", "good_package", gfx942=data)
    provide(site, "plain-dist", "plain", None)
    (site / "plain_dist_mod.py").write_text("")
    provide(site, "gone-dist", "gone", None)
    provide(site, "empty-dist", "empty", "empty_package")
    answer = aotkern("doctor", "--target", "gfx942")
    assert answer.code == 0
    assert "fits         good_package/good.gfx942.aotk" in answer.out
    assert [line.split(":")[0] for line in answer.out.splitlines() if line.startswith("broken")] == [
        "broken       entry point empty", "broken       entry point gone", "broken       entry point plain"
    ]  # fmt: skip
    document = aotkern("doctor", "--target", "gfx942", "--json").json("doctor")
    assert [row["name"] for row in document["broken"]] == ["empty", "gone", "plain"]


def test_a_pipe_among_bundles_stops_nobody(tmp_path, data):
    os.mkfifo(tmp_path / "a.gfx942.aotk")
    (tmp_path / "b.gfx942.aotk").write_bytes(data)
    assert aotkern.load(tmp_path, driver=driver("gfx942")).where.endswith("b.gfx942.aotk")
    with pytest.raises(InputError, match="a pipe"):
        aotkern.load(tmp_path / "a.gfx942.aotk", driver=driver("gfx942"))


@pytest.fixture
def file(tmp_path, data) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "b.gfx942.aotk").write_bytes(data)
    return folder / "b.gfx942.aotk"


def test_a_file_that_anybody_can_write_is_refused_and_can_be_accepted(file, monkeypatch):
    file.chmod(0o666)
    words = r"only its owner and root can write \(.*AOTKERN_OTHERS=accept\), found anybody can write it \(mode 0666\)"
    with pytest.raises(TrustError, match=words):
        aotkern.load(file, driver=driver("gfx942"))
    with pytest.raises(TargetError, match=r"refused: .*anybody can write it"):
        other = file.with_name("c.gfx942.aotk")
        other.write_bytes(file.read_bytes())
        other.chmod(0o666)
        aotkern.load(file.parent, driver=driver("gfx942"))
    monkeypatch.setenv("AOTKERN_OTHERS", "accept")
    assert aotkern.load(file, driver=driver("gfx942"))


def test_a_link_is_judged_by_what_it_leads_to(file, tmp_path):
    file.chmod(0o666)
    (tmp_path / "link.gfx942.aotk").symlink_to(file)
    assert "anybody can write it" in owners.ownership(tmp_path / "link.gfx942.aotk").refusal


def test_usual_modes_pass(file, caplog):
    for mode in (0o644, 0o664, 0o444, 0o600):
        file.chmod(mode)
        file.parent.chmod(0o775)
        assert owners.ownership(file) == owners.Ownership()
    file.parent.chmod(0o777)
    with caplog.at_level(logging.WARNING, "aotkern"):
        aotkern.load(file, driver=driver("gfx942"))
    assert "anybody can put another file in its place (mode of its folder 0777)" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users(file, caplog):
    os.chown(file, 12345, 12345)
    assert owners.ownership(file).remark == "it belongs to user 12345, not to this one or root"
    file.parent.chmod(0o1777)
    assert owners.ownership(file).refusal == "it belongs to user 12345, in a folder into which anybody can write"
    os.chown(file, 0, 0)
    assert owners.ownership(file) == owners.Ownership()


def test_both_targets_of_a_folder_are_used_each_on_its_device(tmp_path, data, other):
    for name, content in (("a.gfx942", data), ("a.gfx950", other)):
        (tmp_path / f"{name}.aotk").write_bytes(content)
    null = driver("gfx942", "gfx950", "cuda:90")
    both = aotkern.load(tmp_path, driver=null)
    assert isinstance(both, LoadedBundles)
    assert (list(both), "scale" in both) == (["scale"], True)
    for device in (0, 1, 1):
        both["scale"][1](Pointer(4096, "fp32", 64, device), OUT, 17, 1.0)
    both["scale"][1](X, OUT, 17, factor=1.0)
    assert [launch.function.device for launch in null.launches] == [0, 1, 1, 0]
    assert [item.launches for item in both.counters()] == [2, 2]
    with pytest.raises(TargetError, match="scale on device 2"):
        both["scale"][1](Pointer(4096, "fp32", 64, 2), OUT, 17, 1.0)
    with pytest.raises(InputError, match="one of scale"):
        both["nothing"]
    assert both.preload(device=1).variants == 1
    assert both.preload().variants == len(SPECS) + 1
    with pytest.raises(TargetError):
        both.preload(device=2)
    assert aotkern.load(tmp_path, driver=null, device=1).manifest.target.arch == "gfx950"


def key_of(bundle, part: str) -> str:
    (found,) = [variant.text for variant in bundle.manifest.variants if part in variant.text]
    return found


def test_a_denied_variant_serves_no_call_and_is_named(file, caplog, monkeypatch):
    plain = aotkern.load(file, driver=driver("gfx942"))
    fp16 = key_of(plain, "*fp16")
    with caplog.at_level(logging.WARNING, "aotkern"):
        bundle = aotkern.load(file, driver=driver("gfx942"), deny=[fp16, "0123456789ab"])
    assert f"{fp16} is denied by {fp16}" in caplog.text
    assert "deny: 0123456789ab denies nothing in " in caplog.text
    call = Pointer(4096, "fp16", 64), Pointer(8192, "fp16", 64), 17, 1.0
    plain["scale"][1](*call)
    with pytest.raises(MissError, match=r"variant: in service -> denied by scale\[hip:gfx942\]") as caught:
        bundle["scale"][1](*call)
    assert caught.value.nearest == fp16
    bundle["scale"][1](X, OUT, 17, 1.0)
    assert bundle.preload().variants == plain.preload().variants - 1
    monkeypatch.setenv("AOTKERN_DENY", fp16)
    with pytest.raises(MissError, match="denied by"):
        aotkern.load(file, driver=driver("gfx942"))["scale"][1](*call)


def test_a_denied_code_object_takes_all_its_variants_along_and_others_step_in(file, tmp_path):
    plain = aotkern.load(file, driver=driver("gfx942"))
    special = plain.manifest.by_text[key_of(plain, "n:i32:D")]
    (tmp_path / "list").write_text(f"# found wrong\n{special.object}\n\n")
    bundle = aotkern.load(file, driver=driver("gfx942"), deny=[f"@{tmp_path / 'list'}"])
    assert special.text in bundle.denied
    bundle["scale"][1](X, OUT, 16, 1.0)
    assert special.text not in bundle.counters().dispatched
    everything = aotkern.load(file, driver=driver("gfx942"), deny=[v.text for v in plain.manifest.variants])
    with pytest.raises(MissError, match="denied by"):
        everything["scale"][1](X, OUT, 16, 1.0)
    with pytest.raises(MissError, match="no variant was built"):
        everything["scale"][1](Pointer(1, "fp64", 64), OUT, 16, 1.0)


@pytest.mark.parametrize("text", ["scale", "sha256:12", "0123", "@/nonexistent"])
def test_what_is_no_entry_is_bad_input(text):
    with pytest.raises(InputError, match="deny"):
        Deny.read(text)


def test_entries_in_one_text():
    assert Deny.read(" a[b](c) ;;\nsha256:0123456789ab\n").entries == ("a[b](c)", "sha256:0123456789ab")


def test_a_device_that_is_given_less_than_its_architecture_has(tmp_path, compile_kernel, caplog):
    class Part(type(driver("gfx942"))):
        def devices(self):
            return tuple(replace(device, shared_bytes=1024) for device in super().devices())

    spec = Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128", launch={"shared": 4096})
    (tmp_path / "b.gfx942.aotk").write_bytes(make(compile_kernel, "gfx942", (spec,)))
    with caplog.at_level(logging.WARNING, "aotkern"):
        aotkern.load(tmp_path / "b.gfx942.aotk", driver=Part((Target.parse("gfx942"),)))
    assert "1 variants need more than the 1024 bytes of LDS that device 0 (no hardware, gfx942) has" in caplog.text
