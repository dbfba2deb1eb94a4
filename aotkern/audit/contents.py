"""What a verified bundle holds: kernels, variants, sizes and provenance, as facts for a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotkern.audit.findings import Finding, Verdict
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.manifest import Manifest

AUDIT = "verify"


@dataclass(frozen=True, slots=True)
class KernelContents:
    """One kernel of a bundle.

    Attributes:
        name: The kernel.
        variants: How many variants it has.
        objects: How many different code objects they use.
        object_bytes: Bytes of these code objects.
        code_bytes: Bytes of machine instructions in them.
    """

    name: str
    variants: int
    objects: int
    object_bytes: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class ContentsReport:
    """One bundle of which every byte was checked.

    Attributes:
        target: What its code is for.
        manifest: Digest of its manifest.
        file_bytes: Size of the file.
        kernels: Its kernels, in the order of the manifest.
        toolchain: Names and versions of what compiled it.
        provenance: Facts for people about its build.
    """

    target: str
    manifest: Digest
    file_bytes: int
    kernels: tuple[KernelContents, ...]
    toolchain: Mapping[str, str]
    provenance: Mapping[str, str]

    @property
    def verdict(self) -> Verdict:
        """Clean, unless there was nothing in it: what does not verify does not get a report."""
        return Verdict.CLEAN if self.kernels else Verdict.UNKNOWN

    @property
    def findings(self) -> tuple[Finding, ...]:
        """None: a bundle that does not verify is refused with an error."""
        return ()

    @property
    def summary(self) -> str:
        """Target, counts and digest."""
        if not self.kernels:
            return f"nothing was checked: no variant in this bundle for {self.target}"
        variants = sum(kernel.variants for kernel in self.kernels)
        return f"every byte checked: {self.target}, {variants} variants, manifest {self.manifest.short}"


def of(bundle: Bundle) -> ContentsReport:
    """The facts of an opened bundle.

    Raises:
        IntegrityError: It does not verify.
    """
    bundle.verify()
    manifest = bundle.manifest
    kernels = tuple(_kernel(manifest, entry.name) for entry in manifest.kernels)
    return ContentsReport(
        str(manifest.target), manifest.digest, len(bundle.data), kernels, manifest.toolchain, bundle.provenance
    )


def _kernel(manifest: Manifest, name: str) -> KernelContents:
    variants = [entry for entry in manifest.variants if entry.kernel == name]
    objects = [manifest.object(digest) for digest in dict.fromkeys(entry.object for entry in variants)]
    code = sum(entry.code.code_bytes for entry in objects)
    return KernelContents(name, len(variants), len(objects), sum(entry.size for entry in objects), code)
