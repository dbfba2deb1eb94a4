"""Runs at the start of every Python process of a watched program, and makes Triton watched once it is imported.

Imports nothing before that: a process that never imports Triton pays for one entry in `sys.meta_path`. Afterwards the
program's own `sitecustomize`, which this file hides, is run. Written for any Python 3, since the program's may be old.
"""

import os
import sys


class _BeforeTriton:
    """A finder that starts the watch when `triton` is looked for, and then steps aside."""

    def __init__(self, folder, home):
        self.folder, self.home = folder, home

    def find_spec(self, name, path=None, target=None):
        if name != "triton" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            if sys.version_info < (3, 10):
                raise ImportError("Python %d.%d is too old" % sys.version_info[:2])
            finder = self.child().start(self.folder)
        except Exception as error:
            sys.stderr.write("aotkern: process %d is not watched: %s\n" % (os.getpid(), error))
            return None
        return finder.find_spec(name, path, target)

    def child(self):
        """The watch: from the program's own aotkern where it has one, else from the one that runs the audit."""
        import importlib
        from importlib.machinery import PathFinder

        try:
            return importlib.import_module("aotkern.triton_bridge.child")
        except ModuleNotFoundError as error:
            if error.name != "aotkern":
                raise

        class _Aotkern:
            @staticmethod
            def find_spec(name, path=None, target=None, home=self.home):
                return PathFinder.find_spec(name, [home], target) if name == "aotkern" else None

        sys.meta_path.append(_Aotkern)
        return importlib.import_module("aotkern.triton_bridge.child")


def _begin():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here or not entry]
    folder = os.environ.get("AOTKERN_JIT_EVENTS")
    if folder:
        home = os.path.dirname(os.path.dirname(os.path.dirname(here)))
        sys.meta_path.insert(0, _BeforeTriton(folder, home))


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
