from pathlib import Path

from aotkern.build import environment

CALLER = {
    "PATH": "/bin",
    "LD_LIBRARY_PATH": "/lib",
    "HOME": "/home/me",
    "TRITON_INTERPRET": "1",
    "AMDGCN_USE_BUFFER_OPS": "0",
    "TRITON_KERNEL_OVERRIDE": "1",
    "PYTHONPATH": "/evil",
    "LD_PRELOAD": "/evil.so",
}


def test_a_worker_inherits_nothing_that_could_reach_the_code():
    made = environment.for_worker(Path("/scratch"), environment.pinned(), CALLER, {})
    assert {name for name in made if made[name] == CALLER.get(name)} == {"PATH", "LD_LIBRARY_PATH"}
    assert "TRITON_INTERPRET" not in made


def test_everything_private_lies_in_the_scratch_folder():
    made = environment.for_worker(Path("/scratch"), environment.pinned(), {}, {})
    assert "PATH" not in made
    for name in ("HOME", "TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR"):
        assert made[name].startswith("/scratch")


def test_line_information_is_off_unless_asked_for():
    assert environment.pinned()["TRITON_DISABLE_LINE_INFO"] == "1"
    assert environment.pinned(line_info=True)["TRITON_DISABLE_LINE_INFO"] == "0"


def test_what_is_pinned_is_what_the_worker_gets():
    settings = environment.pinned()
    made = environment.for_worker(Path("/scratch"), settings, {"TRITON_DEFAULT_FP_FUSION": "0"}, {"TZ": "UTC"})
    assert settings.items() <= made.items()
    assert made["TZ"] == "UTC"
