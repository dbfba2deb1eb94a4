"""What `verify` refuses of a manifest, `load` refuses, too: when it opens the bundle, or before it launches."""

from __future__ import annotations

import os
import threading
import time

import pytest
from bundles import opened
from tampering import with_manifest

from aotkern.arguments import Pointer
from aotkern.drivers.null import NullDriver
from aotkern.errors import AotkernError, IntegrityError
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.target import Target


def rename(document):
    document["kernels"][0]["parameters"][0][0] = "y"


def swap(document):
    rows = document["kernels"][0]["parameters"]
    rows[0], rows[1] = rows[1], rows[0]


def drop(document):
    document["kernels"][0]["parameters"].pop()


def add(document):
    document["kernels"][0]["parameters"].append(["z", False, None, True, ""])


def twice(document):
    document["kernels"][0]["parameters"][1][0] = document["kernels"][0]["parameters"][0][0]


def option_set(document):
    document["variants"][0]["options"] = "nosuchset"


def option_name(document):
    name, row = document["options"].popitem()
    document["options"]["0" * 12] = row
    for variant in document["variants"]:
        variant["options"] = "0" * 12


def kernel_name(document):
    document["kernels"][0]["name"] = "other"


def kernel_more(document):
    document["kernels"].append({**document["kernels"][0], "name": "unused"})


def kernel_twice(document):
    document["kernels"].append(document["kernels"][0])


def variant_twice(document):
    document["variants"].insert(0, document["variants"][0])


def variant_order(document):
    document["variants"].reverse()


def variant_target(document):
    document["variants"][0]["key"] = document["variants"][0]["key"].replace("gfx942", "gfx950")


def variant_key(document):
    document["variants"][0]["key"] = "scale[hip:gfx942](what"


def variant_object(document):
    document["variants"][0]["object"] = "sha256:" + "0" * 64


def object_arguments(document):
    for row in document["objects"]:
        row["code"]["arguments"] = [1]


def object_no_arguments(document):
    for row in document["objects"]:
        row["code"]["arguments"] = []


def object_argument_far_away(document):
    """The buffer of a launch would have gigabytes."""
    for row in document["objects"]:
        row["code"]["arguments"][-1][0] = 1 << 33


def object_arguments_on_one_another(document):
    for row in document["objects"]:
        row["code"]["arguments"][1][0] = row["code"]["arguments"][0][0]


def object_symbol(document):
    for row in document["objects"]:
        row["code"]["symbol"] = 5


def object_facts(document):
    for row in document["objects"]:
        row["code"] = {}


def object_flags(document):
    for row in document["objects"]:
        row["code"]["e_flags"] += 1


CHANGES = (
    rename, swap, drop, add, twice, option_set, option_name, kernel_name, kernel_more, kernel_twice, variant_twice,
    variant_order, variant_target, variant_key, variant_object, object_arguments, object_no_arguments, object_symbol,
    object_facts, object_flags, object_argument_far_away, object_arguments_on_one_another,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_verify_refuses_is_not_launched(data, change):
    tampered = with_manifest(data, change)
    with pytest.raises(IntegrityError):
        opened(tampered).verify()
    driver = NullDriver((Target.parse("gfx942"),))
    with pytest.raises(AotkernError):
        bundle = LoadedBundle(opened(tampered), driver, None, "error", None, Hooks())
        for name in bundle:
            for n in (16, 17, 1):
                bundle[name][1](Pointer(4096, "fp32", 64), Pointer(8192, "fp32", 64), n, 1.0)
            bundle[name][1](Pointer(4096, "fp16", 64), Pointer(8192, "fp16", 64), 17, 1.0)
            bundle[name][1](Pointer(4096, "fp32", None), Pointer(8192, "fp32", None), 17, 1.0)
    assert not driver.launches


def test_every_byte_can_be_asked_for(tmp_path, data):
    import aotkern

    def facts(document):
        document["objects"][0]["code"]["kernarg_bytes"] += 8

    path = tmp_path / "scale.gfx942.aotk"
    path.write_bytes(with_manifest(data, facts))
    aotkern.load(path, device="null:gfx942")
    with pytest.raises(IntegrityError, match="the facts that the manifest states"):
        aotkern.load(path, device="null:gfx942", verify=True)


def test_a_child_that_is_forked_while_another_thread_loads_can_load(data):
    class Slow(NullDriver):
        def load(self, device, image, symbol, shared):
            time.sleep(0.5)
            return super().load(device, image, symbol, shared)

    bundle = LoadedBundle(opened(data), Slow((Target.parse("gfx942"),)), None, "error", None, Hooks())
    thread = threading.Thread(target=bundle.preload)
    thread.start()
    time.sleep(0.1)
    child = os.fork()
    if not child:  # the other thread, which holds the lock, does not exist here
        signal_after = threading.Timer(20, lambda: os._exit(1))
        signal_after.daemon = True
        signal_after.start()
        bundle.preload()
        os._exit(0)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
