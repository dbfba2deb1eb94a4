"""Runs at the start of every Python process of a program that is watched, recorded or served, and waits for Triton.

Imports nothing before that: a process that never imports Triton pays for one entry in `sys.meta_path`. Afterwards the
program's own `sitecustomize`, which this file hides, is run. Written for any Python 3, since the program's may be old.
"""

import os
import sys

# For each variable of the environment that asks for something: the module of aotkern whose `start` does it, and what a
# process is then. What comes later is asked first: a call that is served reaches neither a recording nor a watch.
_STARTS = (
    ("AOTKERN_JIT_EVENTS", "aotkern.triton_bridge.child", "watched"),
    ("AOTKERN_TRACE", "aotkern.triton_bridge.recording", "recorded"),
    ("AOTKERN_BUNDLE", "aotkern.triton_bridge.installed", "served"),
)


# In these modes alone may a program that cannot be served go on. Any other value, a misspelt one too, is "error".
_LENIENT = ("warn", "jit")


class _BeforeTriton:
    """A finder that starts what was asked for when `triton` is looked for, and then steps aside.

    Where the process must be served and cannot be, it stays, and every import of Triton is an ImportError: a program
    that swallows the first one (as torch does to see whether Triton is there) still gets no Triton that compiles.
    """

    def __init__(self, starts, home):
        self.starts, self.home, self.refusal = starts, home, ""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "triton" or self not in sys.meta_path:
            return None
        if self.refusal:
            raise ImportError(self.refusal)
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        finder = None
        for variable, module, word in self.starts:
            try:
                if sys.version_info < (3, 10):
                    raise ImportError("Python %d.%d is too old" % sys.version_info[:2])
                finder = self.child(module).start(os.environ[variable])
            except Exception as error:
                reason = "aotkern: process %d is not %s: %s" % (os.getpid(), word, error)
                if word == "served" and os.environ.get("AOTKERN_ON_MISS", "error") not in _LENIENT:
                    self.refuse(reason)
                    raise ImportError(reason) from error
                sys.stderr.write(reason + "\n")
        return finder and finder.find_spec(name, path, target)

    def refuse(self, reason):
        """Let no import of Triton through from now on, and say why once, whoever swallows the error."""
        self.refusal = reason
        sys.meta_path.insert(0, self)
        sys.stderr.write(reason + "\n")
        folder = os.environ.get("AOTKERN_SERVED_EVENTS", "")
        if not folder:
            return
        import json

        try:
            with open(os.path.join(folder, "refused.%d.jsonl" % os.getpid()), "a") as file:
                file.write(json.dumps({"event": "refused", "reason": reason}) + "\n")
        except OSError:
            pass  # it was said on standard error

    def child(self, name):
        """A module of aotkern: of the program's own where it has one, else of the one that started it."""
        import importlib
        from importlib.machinery import PathFinder

        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != "aotkern":
                raise

        class _Aotkern:
            @staticmethod
            def find_spec(name, path=None, target=None, home=self.home):
                return PathFinder.find_spec(name, [home], target) if name == "aotkern" else None

        sys.meta_path.append(_Aotkern)
        return importlib.import_module(name)


def _begin():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here or not entry]
    starts = [start for start in _STARTS if os.environ.get(start[0])]
    if starts:
        home = os.path.dirname(os.path.dirname(os.path.dirname(here)))
        sys.meta_path.insert(0, _BeforeTriton(starts, home))


def _chain():
    """Run the `sitecustomize` that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_begin()
_chain()
