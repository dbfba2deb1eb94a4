"""The variants that calls are held against: tables that dispatch chooses from, one for each kernel of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotkern.dispatch import Table, Variant
from aotkern.manifest import Manifest
from aotkern.spec import Parameter, VariantKey
from aotkern.target import Target


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What was built, or will be.

    Attributes:
        label: Where it comes from, for people.
        target: What it is for.
        tables: The variants of each kernel, as the loader arranges them.
    """

    label: str
    target: Target
    tables: Mapping[str, Table]

    @classmethod
    def of_manifest(cls, label: str, manifest: Manifest) -> Catalogue:
        """The variants of a bundle, arranged as the loader does."""
        tables = {}
        for entry in manifest.kernels:
            variants = [
                Variant(variant.key, manifest.options[variant.options])
                for variant in manifest.variants
                if variant.kernel == entry.name
            ]
            tables[entry.name] = Table.make(entry.name, entry.parameters, variants)
        return cls(label, manifest.target, tables)

    @classmethod
    def of_keys(
        cls, label: str, target: Target, kernels: Mapping[str, tuple[Sequence[Parameter], Sequence[VariantKey]]]
    ) -> Catalogue:
        """Variants that are declared: what a build of them would hold. Options are those that were asked for."""
        tables = {
            name: Table.make(name, parameters, [Variant(key, dict(key.options)) for key in keys])
            for name, (parameters, keys) in kernels.items()
        }
        return cls(label, target, tables)
