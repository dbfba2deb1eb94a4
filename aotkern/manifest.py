"""The manifest: what a bundle for one target holds, as values and as canonical bytes. No IO.

The bytes are JSON laid out so that a `git diff` is readable: one kernel, one set of options, one code object and one
variant a line. There is one byte sequence for one manifest: everything is sorted, and `Manifest.check` refuses another
spelling. Format rule: a reader knows exactly one version, and refuses others by number; a field that it does not know
is an error, not a hint.

Reading happens in two steps. `Manifest.parse` reads the structure, which is all that a loader needs of bytes whose hash
it has verified; keys and code object facts are parsed when first used, and read lazily, the facts are not even decoded
before. `check` parses all of them and holds them against each other, and reports every problem at once:
`aotkern verify` and the audits call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from aotkern.canonical import dumps, loads
from aotkern.codeobject.facts import Argument, CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, ProblemsError
from aotkern.fields import Fields
from aotkern.objectrows import StoredFacts, cut
from aotkern.spec import Constant, Parameter, VariantKey
from aotkern.target import Target

FORMAT = "aotkern.manifest"
VERSION = 1

Options = Mapping[str, Constant]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launch needs beside the code, as the compiler's metadata states it.

    Attributes:
        shared: Dynamic LDS (shared memory) of a workgroup, in bytes.
        num_warps: Waves of a workgroup.
        num_ctas: Workgroups of a cluster.
        cooperative: Whether all workgroups must be resident at once.
        pdl: Whether the launch may overlap its predecessor (programmatic dependent launch).
        global_scratch: Scratch memory of one workgroup, in bytes; 0 for none.
        global_scratch_align: Its alignment, in bytes.
        profile_scratch: Profiler memory of one workgroup, in bytes; 0 for none.
        profile_scratch_align: Its alignment, in bytes.
    """

    shared: int
    num_warps: int
    num_ctas: int = 1
    cooperative: bool = False
    pdl: bool = False
    global_scratch: int = 0
    global_scratch_align: int = 1
    profile_scratch: int = 0
    profile_scratch_align: int = 1


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel: its name, its call signature, and the digest of its source with everything it uses."""

    name: str
    parameters: tuple[Parameter, ...]
    source: Digest


def _is_argument(row: object) -> bool:
    return isinstance(row, list) and [type(item) for item in row] == [int, int, str]


@dataclass(frozen=True)
class ObjectEntry:
    """A code object: digest and size of its bytes, and its facts."""

    digest: Digest
    size: int
    facts: Mapping[str, Any]

    @cached_property
    def code(self) -> CodeObject:
        """The facts, parsed."""
        return CodeObject.from_json(self.plain_facts, f"object {self.digest.short}")

    @property
    def plain_facts(self) -> Mapping[str, Any]:
        """The facts, decoded."""
        return self.facts.decoded if isinstance(self.facts, StoredFacts) else self.facts

    @property
    def loading(self) -> tuple[object, object]:
        """The ELF flags and the symbol as the facts state them, of whatever type, and None where they do not."""
        if isinstance(self.facts, StoredFacts):
            return self.facts.loading()
        return self.facts.get("e_flags"), self.facts.get("symbol")

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel's arguments alone: all that a first launch needs, and parsed in a tenth of the time."""
        rows = self.facts.get("arguments")
        if isinstance(rows, list) and all(map(_is_argument, rows)):
            return tuple(Argument(*row) for row in rows)
        return self.code.arguments  # with every problem of the facts in the error


@dataclass(frozen=True)
class VariantEntry:
    """A variant.

    Attributes:
        text: The canonical text of its key.
        content: Digest of everything that the code object was made from: source, key, effective options, environment
            and toolchain. Equal content means equal object.
        object: Digest of its code object.
        launch: What a launch needs.
        options: Name of the effective options in the manifest's table.
    """

    text: str
    content: Digest
    object: Digest
    launch: Launch
    options: str

    @cached_property
    def key(self) -> VariantKey:
        """The key, parsed."""
        return VariantKey.parse(self.text)

    @property
    def kernel(self) -> str:
        """The name of its kernel, without parsing the key."""
        return self.text.partition("[")[0]


@dataclass(frozen=True)
class Manifest:
    """The content of one bundle.

    Attributes:
        target: What every code object in it is for.
        toolchain: Names and versions of what compiled it: `triton`, `triton_digest`, `codegen`, ...
        environment: The environment variables that were pinned for the compiler.
        options: Effective compile options by name; variants refer to them.
        kernels: Sorted by name.
        objects: In the order in which the sorted variants first use them.
        variants: Sorted by key text.
    """

    target: Target
    toolchain: Mapping[str, str]
    environment: Mapping[str, str]
    options: Mapping[str, Options]
    kernels: tuple[KernelEntry, ...]
    objects: tuple[ObjectEntry, ...]
    variants: tuple[VariantEntry, ...]

    @classmethod
    def make(
        cls,
        target: Target,
        toolchain: Mapping[str, str],
        environment: Mapping[str, str],
        kernels: Sequence[KernelEntry],
        objects: Mapping[Digest, ObjectEntry],
        variants: Sequence[tuple[VariantEntry, Options]],
    ) -> Manifest:
        """Put the parts in canonical order; `objects` may hold more than the variants use.

        Each variant comes with its effective options, by which its `options` name is set.
        """
        table: dict[str, Options] = {}
        entries: list[VariantEntry] = []
        for entry, options in sorted(variants, key=lambda pair: pair[0].text):
            name = options_name(options)
            table[name] = options
            entries.append(VariantEntry(entry.text, entry.content, entry.object, entry.launch, name))
        used = dict.fromkeys(entry.object for entry in entries)
        return cls(
            target=target,
            toolchain=dict(sorted(toolchain.items())),
            environment=dict(sorted(environment.items())),
            options=dict(sorted(table.items())),
            kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name)),
            objects=tuple(objects[digest] for digest in used),
            variants=tuple(entries),
        )

    @classmethod
    def parse(cls, data: bytes, where: str, *, lazily: bool = False) -> Manifest:
        """Read the structure of a manifest.

        Args:
            data: Its bytes.
            where: Names it in errors.
            lazily: Leave the facts of code objects undecoded until somebody looks at them, who may get the
                `IntegrityError` then. For bytes whose hash was verified.

        Raises:
            IntegrityError: Not a manifest of this version, with every problem of its structure.
        """
        rest, rows = cut(data, where) if lazily else (data, ())
        value = loads(rest, where)
        named = value if isinstance(value, dict) else {}
        if named.get("format") != FORMAT or repr(named.get("version")) != str(VERSION):
            found = f"{str(named.get('format'))[:40]!r} version {str(named.get('version'))[:20]}"
            raise IntegrityError.one(f"{where}: format", f"{FORMAT!r} version {VERSION}", found)
        if rows and named.get("objects") != []:
            return cls.parse(data, where)  # the lines that were cut out are not those of the code objects
        problems: list[Problem] = []
        names = ("format", "version", *(item.name for item in fields(cls)))
        form = Fields(value, where, names, problems)
        objects = tuple(
            [ObjectEntry(*row) for row in rows] or map(_object, form.items("objects", ("digest", "size", "code")))
        )
        manifest = cls(
            target=form.parsed("target", Target.parse) or _NOWHERE,
            toolchain=form.texts("toolchain", plain=True),
            environment=form.texts("environment", plain=True),
            options={name: _options(row) for name, row in form.objects("options").items()},
            kernels=tuple(map(_kernel, form.items("kernels", ("name", "parameters", "source")))),
            objects=objects,
            variants=_variants(form, objects),
        )
        if problems:
            raise IntegrityError(problems)
        return manifest

    def to_bytes(self) -> bytes:
        """The canonical bytes."""
        parts = {
            "format": dumps(FORMAT),
            "version": dumps(VERSION),
            "target": dumps(str(self.target)),
            "toolchain": _lines(self.toolchain),
            "environment": _lines(self.environment),
            "options": _lines({name: {k: v.text for k, v in row.items()} for name, row in self.options.items()}),
            "kernels": _lines(
                [
                    {"name": k.name, "parameters": [_parameter_json(p) for p in k.parameters], "source": str(k.source)}
                    for k in self.kernels
                ]
            ),
            "objects": _lines([{"digest": str(o.digest), "size": o.size, "code": o.plain_facts} for o in self.objects]),
            "variants": _lines(
                [
                    {
                        "key": v.text,
                        "content": str(v.content),
                        "object": str(v.object),
                        "launch": _launch_json(v.launch),
                        "options": v.options,
                    }
                    for v in self.variants
                ]
            ),
        }
        body = ",\n".join(f"{dumps(name)}:{text}" for name, text in parts.items())
        return f"{{{body}}}\n".encode()

    @cached_property
    def digest(self) -> Digest:
        """The digest of the canonical bytes: the identity of everything in the bundle."""
        return Digest.of(self.to_bytes())

    @cached_property
    def by_text(self) -> Mapping[str, VariantEntry]:
        """Variants by the text of their key."""
        return {variant.text: variant for variant in self.variants}

    @cached_property
    def _objects(self) -> Mapping[str, ObjectEntry]:
        return {entry.digest.hex: entry for entry in self.objects}  # a text keeps its hash, a digest makes it anew

    @cached_property
    def _kernels(self) -> Mapping[str, KernelEntry]:
        return {entry.name: entry for entry in self.kernels}

    def object(self, digest: Digest) -> ObjectEntry:
        """The code object with this digest.

        Raises:
            InputError: There is none.
        """
        entry = self._objects.get(digest.hex)
        if entry is None:
            raise InputError.one("manifest", "the digest of one of its code objects", str(digest))
        return entry

    def kernel(self, name: str) -> KernelEntry:
        """The kernel with this name.

        Raises:
            InputError: There is none; the error lists those that are there.
        """
        if name not in self._kernels:
            raise InputError.one("kernel", f"one of {', '.join(self._kernels) or '(none)'}", repr(name))
        return self._kernels[name]

    def check(self, where: str, data: bytes | None = None) -> None:
        """Hold every part against every other.

        Args:
            where: Names the manifest in the error.
            data: The bytes it was read from, which must be its canonical ones.

        Raises:
            IntegrityError: With every problem found.
        """
        problems = IntegrityError(chain(self._consistency(where), self._parsed(where)))
        if problems.problems:
            raise problems
        if data is not None and data != self.to_bytes():
            raise IntegrityError.one(where, "the canonical spelling of this manifest", "another one")

    def check_references(self, where: str) -> None:
        """Hold the lists of the manifest against each other, without parsing a key or the facts of a code object.

        That is the cheap part of `check`, for a loader; `check_variants` is the part for the variants that it uses.

        Args:
            where: Names the manifest in the error.

        Raises:
            IntegrityError: With the problems found.
        """
        problems = IntegrityError(self._consistency(where))
        if problems.problems:
            raise problems

    def check_variants(self, variants: Iterable[VariantEntry], where: str) -> None:
        """Hold variants that are about to be used against the target and the parameters of their kernels.

        Args:
            variants: Variants of this manifest, whose keys are parsed.
            where: Names the manifest in the error.

        Raises:
            IntegrityError: With the problems found.
        """
        problems = IntegrityError(problem for variant in variants for problem in self._variant(variant, where))
        if problems.problems:
            raise problems

    def _consistency(self, where: str) -> Iterator[Problem]:
        texts = [variant.text for variant in self.variants]
        yield from _once(f"{where}: variants", texts)
        yield from _once(f"{where}: objects", [str(entry.digest) for entry in self.objects])
        yield from _once(f"{where}: kernels", [entry.name for entry in self.kernels])
        order = list(dict.fromkeys(variant.object for variant in self.variants))
        if texts != sorted(texts) or order != [entry.digest for entry in self.objects]:
            yield Problem(where, "variants sorted by key, and their objects in order of first use", "another order")
        for variant in self.variants:
            if variant.options not in self.options:
                yield Problem(f"{where}: {variant.text}", "options from the table", repr(variant.options)[:60])
            if variant.kernel not in self._kernels:
                yield Problem(f"{where}: {variant.text}", "a kernel from the list", repr(variant.kernel)[:60])
        for name, row in self.options.items():
            if options_name(row) != name:
                yield Problem(f"{where}: options {name[:60]}", f"the name {options_name(row)}", "another name")
        for name in self.options.keys() - {variant.options for variant in self.variants}:
            yield Problem(f"{where}: options", "a variant with every set of options", f"none with {name[:60]}")
        for name in self._kernels.keys() - {variant.kernel for variant in self.variants}:
            yield Problem(f"{where}: kernels", "a variant of every kernel", f"none of {name[:60]}")

    def _parsed(self, where: str) -> Iterator[Problem]:
        for entry in self.objects:
            try:
                target = entry.code.target
            except ProblemsError as error:
                yield from error.within(where)
                continue
            if target != self.target:
                yield Problem(f"{where}: object {entry.digest.short}", f"code for {self.target}", str(target))
        for variant in self.variants:
            yield from self._variant(variant, where)

    def _variant(self, variant: VariantEntry, where: str) -> Iterator[Problem]:
        try:
            key = variant.key
        except ProblemsError as error:
            yield from error.within(where)
            return
        if key.target != self.target:
            yield Problem(f"{where}: {variant.text}", f"the target {self.target}", str(key.target))
        kernel = self._kernels.get(key.kernel)
        if kernel and [name for name, _ in key.arguments] != [p.name for p in kernel.parameters]:
            yield Problem(f"{where}: {variant.text}", "the parameters of its kernel in order", "others")


def options_name(options: Options) -> str:
    """The name under which a set of effective options stands in the table: made of its content."""
    text = dumps({name: value.text for name, value in options.items()})
    return Digest.of(text.encode()).short


_NOWHERE = Target.parse("gfx942")


def _lines(values: Mapping[str, Any] | Sequence[Any]) -> str:
    if isinstance(values, Mapping):
        rows = [f"{dumps(name)}:{dumps(value)}" for name, value in sorted(values.items())]
        return "{\n" + ",\n".join(rows) + "}" if rows else "{}"
    rows = [dumps(value) for value in values]
    return "[\n" + ",\n".join(rows) + "]" if rows else "[]"


def _once(where: str, names: Sequence[str]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(where, "each entry once", f"{name} {count} times")


def _parameter_json(parameter: Parameter) -> list[Any]:
    return [parameter.name, parameter.constexpr, parameter.default, parameter.specialised, parameter.type]


def _launch_json(launch: Launch) -> dict[str, Any]:
    """Only what differs from the default, so that a line stays readable."""
    return {item.name: value for item in fields(Launch) if (value := getattr(launch, item.name)) != item.default}


_LAUNCH_DEFAULTS = asdict(Launch(shared=0, num_warps=0))
_ALWAYS_NAMES = ("shared", "num_warps")
_ALWAYS = set(_ALWAYS_NAMES)


def _launch(form: Fields) -> Launch:
    given = form.subset("launch", tuple(_LAUNCH_DEFAULTS), _ALWAYS_NAMES)
    values = {
        name: (given.flag(name) if isinstance(default, bool) else given.count(name, 40))
        for name, default in _LAUNCH_DEFAULTS.items()
        if given.has(name)
    }
    return Launch(**{**_LAUNCH_DEFAULTS, **values})


def _options(form: Fields) -> Options:
    parsed = {name: form.parsed(name, Constant.parse) for name in form.names}
    return {name: constant for name, constant in parsed.items() if constant is not None}


def _parameter(row: Fields) -> Parameter:
    default = None if row.get("2") is None else row.parsed("2", Constant.parse)
    return Parameter(row.text("0"), row.flag("1"), default.text if default else None, row.flag("3"), row.label("4"))


def _kernel(form: Fields) -> KernelEntry:
    parameters = tuple(map(_parameter, form.rows("parameters", 5)))
    return KernelEntry(form.text("name"), parameters, form.parsed("source", Digest.parse) or Digest(""))


def _object(form: Fields) -> ObjectEntry:
    facts = form.get("code")
    return ObjectEntry(
        form.parsed("digest", Digest.parse) or Digest(""),
        form.count("size"),
        facts if isinstance(facts, dict) else {},
    )


_VARIANT_NAMES = ("key", "content", "object", "launch", "options")
_VARIANT = set(_VARIANT_NAMES)


def _variants(form: Fields, objects: Sequence[ObjectEntry]) -> tuple[VariantEntry, ...]:
    rows = form.get("variants")
    if not isinstance(rows, list):
        return tuple(map(_variant, form.items("variants", _VARIANT_NAMES)))
    # One `Digest` for one code object: reading it again costs more than finding it, and so does comparing two later.
    known = {str(entry.digest): entry.digest for entry in objects}
    entries: list[VariantEntry] = []
    for place, row in enumerate(rows):
        where = f"{form.where}.variants[{place}]"
        entries.append(_usual_variant(row, known) or _variant(Fields(row, where, _VARIANT_NAMES, form.problems)))
        if form.is_lost:
            break
    return tuple(entries)


def _usual_variant(row: object, known: Mapping[str, Digest]) -> VariantEntry | None:
    """A variant with a launch of the usual kind; None for another, or a wrong one, which is read field by field."""
    if not isinstance(row, dict) or row.keys() != _VARIANT:
        return None
    key, options, launch, text = row["key"], row["options"], row["launch"], row["object"]
    content = Digest.read(row["content"])
    code = known.get(text) or Digest.read(text) if isinstance(text, str) else None
    if not (isinstance(key, str) and key and isinstance(options, str) and options and content and code):
        return None
    if not isinstance(launch, dict) or launch.keys() != _ALWAYS:
        return None
    shared, warps = launch["shared"], launch["num_warps"]
    if type(shared) is not int or type(warps) is not int or not (0 <= shared < 1 << 40 and 0 <= warps < 1 << 40):
        return None
    return VariantEntry(key, content, code, _usual_launch(shared, warps), options)


@lru_cache(maxsize=256)
def _usual_launch(shared: int, num_warps: int) -> Launch:
    return Launch(shared, num_warps)


def _variant(form: Fields) -> VariantEntry:
    return VariantEntry(
        form.text("key"),
        form.parsed("content", Digest.parse) or Digest(""),
        form.parsed("object", Digest.parse) or Digest(""),
        _launch(form),
        form.text("options"),
    )
