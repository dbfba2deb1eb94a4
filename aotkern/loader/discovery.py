"""Where bundles are: at a path, in a folder, inside an installed package, or named by an entry point.

A package ships bundles by putting `NAME.TARGET.aotk` files beside its modules, and makes them known by name with an
entry point whose value is the package that holds them:

    [project.entry-points."aotkern.bundles"]
    decode = "my_package.bundles"

Packages inside a zip file work as well: bundles are read as resources, not as files. What looks into packages is
imported when a name asks for it: a bundle at a path costs none of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aotkern.bundle import SIGNATURE_SUFFIX, SUFFIX, Bundle
from aotkern.errors import InputError

if TYPE_CHECKING:
    from aotkern.trust import Trust

GROUP = "aotkern.bundles"
"""The group of the entry points."""


class Readable(Protocol):
    """A file, or a resource of a package that may lie in a zip file."""

    def read_bytes(self) -> bytes:
        """Its content."""


@dataclass(frozen=True, slots=True)
class Found:
    """A bundle that was found, not yet opened.

    Attributes:
        where: What to call it; the last part is its file name.
        source: What its bytes are read from.
        signature: The same for the signature file beside it, where there is one.
    """

    where: str
    source: Readable
    signature: Readable | None = None

    @classmethod
    def at(cls, path: Path) -> Found:
        """A bundle in the file system."""
        beside = path.with_name(path.name + SIGNATURE_SUFFIX)
        return cls(str(path), path, beside if beside.is_file() else None)

    def open(self, trust: Trust | None = None) -> Bundle:
        """Read and verify it.

        Args:
            trust: Whose word is asked for before it is used; None asks nobody.

        Raises:
            InputError: It cannot be read.
            TrustError: Nobody who is trusted for it vouches for it.
            IntegrityError: It is damaged, or no bundle.
        """
        if trust is not None:
            return self._vouched(trust)
        if isinstance(self.source, Path):
            return Bundle.open(self.source)
        return Bundle.decode(self.source.read_bytes(), self.where)

    def _vouched(self, trust: Trust) -> Bundle:
        from aotkern.trust import require  # noqa: PLC0415 - only for those who ask for signatures

        try:
            data = self.source.read_bytes()
            signatures = self.signature.read_bytes() if self.signature else None
        except OSError as error:
            raise InputError.one(self.where, "a bundle that can be read", error.strerror or str(error)) from error
        name = self.where.replace("\\", "/").rpartition("/")[2]
        return require(data, name, signatures, trust, datetime.now(timezone.utc)).bundle


def find(name: str | Path, folders: tuple[Path, ...]) -> tuple[Found, ...]:
    """All bundles that a name can mean, in the order in which they are to be tried.

    A path to a file or a folder means just that. Any other name is looked for in `folders`, then among the entry
    points, then as an importable package; all that is found under the first of these counts.

    Raises:
        InputError: The name is a path, and nothing is there.
    """
    path = Path(name)
    if path.suffix == SUFFIX or path.is_dir() or len(path.parts) > 1:
        if not path.exists():
            raise InputError.one(str(name), "a bundle, or a folder with bundles", "nothing there")
        return tuple(_inside(path, "*")) if path.is_dir() else (Found.at(path),)
    text = str(name)
    places: tuple[Iterator[Found], ...] = (
        (found for folder in folders for found in _inside(folder, text)),
        _entry_points(text),
        _package(text),
    )
    for place in places:
        if found := tuple(place):
            return found
    return ()


def known(folders: tuple[Path, ...]) -> tuple[Found, ...]:
    """Every bundle in `folders` and behind an entry point."""
    import importlib.metadata  # noqa: PLC0415 - see the module's docstring

    inside = [found for folder in folders for found in _inside(folder, "*")]
    names = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
    return (*inside, *(found for name in sorted(names) for found in _entry_points(name)))


def _inside(folder: Path, name: str) -> Iterator[Found]:
    if folder.is_dir():
        for path in sorted(folder.glob(f"{name}{SUFFIX}" if name == "*" else f"{name}.*{SUFFIX}")):
            yield Found.at(path)


def _entry_points(name: str) -> Iterator[Found]:
    import importlib.metadata  # noqa: PLC0415 - see the module's docstring

    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        yield from _resources(point.value.partition(":")[0], name)


def _package(name: str) -> Iterator[Found]:
    if all(part.isidentifier() for part in name.split(".")) and importlib.util.find_spec(
        name.split(".", maxsplit=1)[0]
    ):
        yield from _resources(name, "")


def _resources(package: str, name: str) -> Iterator[Found]:
    """The bundles among a package's resources: those called `name`, or all when it holds none of that name."""
    import importlib.resources  # noqa: PLC0415 - see the module's docstring

    try:
        root = importlib.resources.files(package)
    except ImportError as error:
        raise InputError.one(f"package {package}", "a package that can be imported", str(error)) from error
    entries = sorted((item for item in root.iterdir() if item.name.endswith(SUFFIX)), key=lambda item: item.name)
    named = [item for item in entries if item.name.startswith(f"{name}.")]
    for item in named or entries:
        beside = root.joinpath(item.name + SIGNATURE_SUFFIX)
        yield Found(f"{package}/{item.name}", item, beside if beside.is_file() else None)
