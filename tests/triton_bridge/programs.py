"""A small Triton program for the tests that watch whole processes; what it does is said by its arguments."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time


def kernel():
    import triton_program

    return triton_program.scale


def compile_all(numbers: list[int]) -> None:
    import triton
    from triton.backends.compiler import GPUTarget

    for n in numbers:
        attrs = {(1,): [["tt.divisibility", 16]]} if n % 16 == 0 else {}
        source = triton.compiler.ASTSource(kernel(), {"x": "*fp32", "n": "i32"}, attrs=attrs)
        triton.compile(source, target=GPUTarget("hip", "gfx942", 64))


def main(action: str, *rest: str) -> None:
    if action == "compile":
        compile_all([int(n) for n in rest])
    elif action == "ranks":
        here = [sys.executable, __file__, "compile", "16"]
        jobs = [subprocess.Popen(here, env={**os.environ, "RANK": rank}) for rank in rest]
        sys.exit(max(job.wait() for job in jobs))
    elif action in ("fork", "spawn"):
        compile_all([16])
        job = multiprocessing.get_context(action).Process(target=compile_all, args=([17],))
        job.start()
        job.join()
        sys.exit(job.exitcode)
    elif action == "ready":
        compile_all([16])
        sys.stderr.write("Application startup complete.\n")
        sys.stderr.flush()
        time.sleep(1)
        compile_all([17])
    elif action == "mark":
        from aotkern.triton_bridge.child import mark_phase

        compile_all([16])
        assert mark_phase("scored")
        compile_all([17])
    elif action == "signal":
        compile_all([16])
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(1)
        compile_all([17])
    elif action == "die":
        compile_all([int(n) for n in rest])
        die_while_compiling()
    elif action == "nothing":
        sys.stdout.write("no Triton here\n")


def die_while_compiling() -> None:
    """Be killed after the compile has begun: Triton calls this hook of the program in the middle of it."""
    from triton import knobs

    knobs.runtime.add_stages_inspection_hook = lambda: os.kill(os.getpid(), signal.SIGKILL)
    compile_all([17])


if __name__ == "__main__":
    main(*sys.argv[1:])
