"""Where bundles are: at a path, in a folder, inside an installed package, or named by an entry point.

A package ships bundles by putting `NAME.TARGET.aotk` files beside its modules, and makes them known by name with an
entry point whose value is the package that holds them:

    [project.entry-points."aotkern.bundles"]
    decode = "my_package.bundles"

Packages inside a zip file work as well. No package is imported, so that looking for bundles runs nobody's code. What
looks into packages is imported when a name asks for it: a bundle at a path costs none of it.
"""

from __future__ import annotations

import glob
import importlib.util
import logging
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aotkern.bundle import SIGNATURE_SUFFIX, SUFFIX, Bundle
from aotkern.errors import InputError
from aotkern.loader import owners
from aotkern.target import Target

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from aotkern.trust import Trust

_log = logging.getLogger("aotkern")

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

    def open(self, trust: Trust | None = None, *, by_owner: bool = False) -> Bundle:
        """Read and verify it.

        Args:
            trust: Whose word is asked for before it is used; None asks nobody.
            by_owner: Without `trust`, refuse a file that anybody may have written.

        Raises:
            InputError: It cannot be read.
            TrustError: Nobody who is trusted for it vouches for it.
            IntegrityError: It is damaged, or no bundle.
        """
        if trust is not None:
            return self._vouched(trust)
        if isinstance(self.source, Path):
            bundle = Bundle.open(self.source)
            if by_owner and (remark := owners.check(self.source)):
                _log.warning("%s: %s", self.where, remark)
            return bundle
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

    A `Path`, and a text with a separator or the suffix of a bundle, is a file or a folder. Any other text is a name: it
    is looked for in `folders`, then among the entry points, then as a package, and only then as a folder of the current
    one. All that is found under the first of these counts, so that no folder can take the place of what is installed.

    Raises:
        InputError: The name is a path, and nothing is there; a package that an entry point names cannot be read; or two
            distributions provide this name for one target.
    """
    path = Path(name)
    if isinstance(name, Path) or path.suffix == SUFFIX or "/" in name or "\\" in name:
        if not path.exists():
            raise InputError.one(str(name), "a bundle, or a folder with bundles", "nothing there")
        return tuple(_inside(path, "*")) if path.is_dir() else (Found.at(path),)
    places: tuple[Callable[[], Iterable[Found]], ...] = (
        lambda: _on_the_path(folders, name),
        lambda: _entry_points(name),
        lambda: _package(name),
        lambda: _inside(path, "*"),
    )
    return next((found for place in places if (found := tuple(place()))), ())


def known(folders: tuple[Path, ...]) -> tuple[tuple[Found, ...], tuple[tuple[str, str], ...]]:
    """Every bundle in `folders` and behind an entry point, and each entry point that leads to none, with the reason."""
    import importlib.metadata  # noqa: PLC0415 - see the module's docstring

    found = list(_on_the_path(folders, "*"))
    broken: list[tuple[str, str]] = []
    for name in sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)}):
        try:
            behind = _entry_points(name)
        except InputError as error:
            broken.append((name, str(error)))
            continue
        found += behind
        if not behind:
            broken.append((name, "no bundle in the package that its entry point names"))
    return tuple(found), tuple(broken)


def _on_the_path(folders: Iterable[Path], name: str) -> tuple[Found, ...]:
    """As with other search paths, a file hides those of its name in later folders."""
    found: dict[str, Found] = {}
    for folder in folders:
        for item in _inside(folder, name):
            found.setdefault(item.where.rpartition("/")[2], item)
    return tuple(found.values())


def _inside(folder: Path, name: str) -> Iterator[Found]:
    if folder.is_dir():
        for path in sorted(folder.glob(f"{name}{SUFFIX}" if name == "*" else f"{glob.escape(name)}.*{SUFFIX}")):
            yield Found.at(path)


def _entry_points(name: str) -> tuple[Found, ...]:
    """The bundles of each distribution that provides a name; several may do so for different targets."""
    import importlib.metadata  # noqa: PLC0415 - see the module's docstring

    by_provider: dict[str, tuple[Found, ...]] = {}
    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        provider = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        package = point.value.partition(":")[0]
        by_provider[provider] = tuple(_resources(package, name, point.dist))
    if len(by_provider) > 1:
        _check_providers(name, by_provider)
    return tuple(item for found in by_provider.values() for item in found)


def _check_providers(name: str, by_provider: Mapping[str, Iterable[Found]]) -> None:
    targets: dict[Target, str] = {}
    for provider, found in by_provider.items():
        for target in {item.open().manifest.target for item in found}:
            other = targets.setdefault(target, provider)
            if other != provider:
                expected = "one installed distribution that provides this name for a target"
                raise InputError.one(f"entry point {name}", expected, f"{other} and {provider} for {target}")


def _package(name: str) -> tuple[Found, ...]:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts) or importlib.util.find_spec(parts[0]) is None:
        return ()
    return tuple(_resources(name, "", None))


def _resources(package: str, name: str, owner: Distribution | None) -> Iterator[Found]:
    """The bundles in a package's folder: those called `name`, or all when it holds none of that name.

    Nothing is imported. The folder is that beside the metadata of the distribution, which nothing else on the module
    path can hide, or else the one from which Python would import the package.
    """
    folders = list(_folders(package, owner))
    if not folders:
        raise InputError.one(f"package {package}", "a package that can be read", "none of this name")
    entries = {
        item.name: item for folder in reversed(folders) for item in folder.iterdir() if item.name.endswith(SUFFIX)
    }
    named = [item for item in entries if item.startswith(f"{name}.")]
    for file in sorted(named or entries):
        item = entries[file]
        beside = item.parent.joinpath(file + SIGNATURE_SUFFIX)
        yield Found(f"{package}/{file}", item, beside if beside.is_file() else None)


def _folders(package: str, owner: Distribution | None) -> Iterator[Any]:
    """Where a package lies: folders, or folders inside zip files."""
    top, *rest = package.split(".")
    if owner is not None:
        own: Any = owner.locate_file("/".join((top, *rest)))
        if own.is_dir() and any(item.name.endswith(SUFFIX) for item in own.iterdir()):
            yield own
            return
    spec = importlib.util.find_spec(top) if top.isidentifier() else None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = _readable(Path(place, *rest))
        if folder is not None:
            yield folder


def _readable(path: Path) -> Any:
    """A folder, or one inside a zip file; None where there is none."""
    if path.is_dir():
        return path
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return None
    inside = zipfile.Path(archive, path.relative_to(archive).as_posix() + "/")
    return inside if inside.is_dir() else None
