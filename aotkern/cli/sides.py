"""What a comparison is given on the command line: a bundle, or a manifest by itself."""

from __future__ import annotations

from aotkern.audit.identity import Side
from aotkern.bundle import MAGIC, Bundle
from aotkern.cli import common
from aotkern.manifest import Manifest


def side(name: str) -> Side:
    """A bundle or a manifest file, told apart by its first bytes.

    Raises:
        InputError: The file cannot be read.
        IntegrityError: It is neither, or it is damaged.
    """
    path = common.existing_file(name)
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
        data = head + (b"" if head == MAGIC else file.read())
    if head == MAGIC:
        bundle = Bundle.open(path)
        bundle.verify()
        return Side(name, bundle.manifest, bundle.object)
    manifest = Manifest.parse(data, name)
    manifest.check(name, data)
    return Side(name, manifest)
