"""Every parser against made-up input: `python -m tests.fuzz.parsers [--seconds N] [--seed S] [--only TEXT]`.

Prints, for each parser, how many inputs it got, accepted, refused properly, and what else happened, as Markdown. Exit 1
when anything else happened. A refusal is proper when it is of the expected family, says why, in a text that can be
shown and is not a flood, in time and without much memory. An input that once failed belongs into `corpus/`.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import seeds  # noqa: E402
from calls import Calls  # noqa: E402
from mutations import damaged, in_time  # noqa: E402
from seeds import Code  # noqa: E402
from structured import json_changed, lines_changed, toml_changed  # noqa: E402
from tampering import lined, put_together, taken_apart, with_text  # noqa: E402

from aotkern.bundle import Bundle  # noqa: E402
from aotkern.errors import AotkernError, EmulatorError, InputError, IntegrityError, TrustError  # noqa: E402
from aotkern.escape import visible_text  # noqa: E402

SECONDS = 10
"""For one input."""
MEMORY = 200 << 10
"""By how many KiB the process may grow over one input."""
LONGEST = 1 << 16
"""Characters of a refusal: a flood hides what matters."""

Mutator = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Parser:
    """Something that reads what others wrote.

    Attributes:
        name: For people; its first word names files of the corpus.
        seeds: Valid inputs.
        call: Reads an input; raises an assertion when it accepts what it must not.
        refusals: The errors that are proper answers.
        mutators: How inputs are made from seeds; each is as likely as the next.
        accepts_seeds: Whether every seed is accepted.
    """

    name: str
    seeds: tuple[bytes, ...]
    call: Callable[[bytes], object]
    refusals: tuple[type[AotkernError], ...]
    mutators: tuple[Mutator, ...] = (damaged,)
    accepts_seeds: bool = True

    @property
    def slug(self) -> str:
        """How names of its files in the corpus begin."""
        return self.name.replace(" ", "_").replace("/", "_")


@dataclass
class Tally:
    """What became of the inputs of one parser."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    other: list[tuple[bytes, str]] = field(default_factory=list)


def parsers(code: Code, folder: Path) -> tuple[Parser, ...]:
    """The table."""
    call = Calls(code, folder)
    one, both = (InputError,), (InputError, IntegrityError)
    values, toml, lines = (damaged, json_changed), (damaged, toml_changed), (damaged, lines_changed)
    policy = tuple(line for line in seeds.POLICY.splitlines(keepends=True) if not line.startswith(b"#"))
    return (
        Parser("bundle bytes", (seeds.PLAIN, code.bundle), call.bundle, (IntegrityError,)),
        Parser("bundle header", (seeds.PLAIN, code.bundle), call.bundle, (IntegrityError,), (_header, _header_json)),
        Parser("manifest verify", (code.bundle,), call.bundle, (IntegrityError,), (_manifest, _manifest_json)),
        Parser("manifest loader", (code.bundle,), call.loaded, (AotkernError,), (_manifest, _manifest_json)),
        Parser("manifest eager and lazy", (code.manifest,), call.eager_and_lazy, (IntegrityError,), values),
        Parser("HSACO", (code.hsaco,), call.code_object, (IntegrityError,), (damaged, _bytes)),
        Parser("cubin", (code.cubin,), call.code_object, (IntegrityError,), (damaged, _bytes)),
        Parser("msgpack note", (code.hsaco,), call.code_object, (IntegrityError,), (_note,)),
        Parser("trust file", (seeds.TRUST.encode(),), call.trust, one, toml),
        Parser("trust memory", (seeds.MEMORY,), call.memory, one, values),
        Parser("signature file", (seeds.SIGNATURES, seeds.ONE_EACH), call.signatures, (TrustError,), lines),
        Parser("signed payload", (seeds.PAYLOAD,), call.payload, (TrustError, IntegrityError), values),
        Parser("audit report", seeds.REPORTS, call.report, one, values),
        Parser("private key", (seeds.PEM, seeds.SEALED_PEM, seeds.X448_PEM), call.pem, one, (damaged, _der), False),
        Parser("policy", (b"".join(policy),), call.policy, one, toml),
        Parser("workload", (seeds.WORKLOAD,), call.workload, one, toml),
        Parser("budget", (seeds.BUDGET,), call.budget, one, toml),
        Parser("coverage domain", (seeds.DOMAIN,), call.domain, one, toml),
        Parser("lock", (seeds.LOCK,), call.lock, (IntegrityError,), values),
        Parser("trace", (seeds.TRACE,), call.trace, (IntegrityError,), lines),
        Parser("OCI manifest", (seeds.ARTIFACT.to_bytes(),), call.artifact, (IntegrityError,), values),
        Parser("OCI index", (seeds.INDEX,), call.index, (IntegrityError,), values),
        Parser("OCI reference", _encoded(seeds.REFERENCES), call.reference, one),
        Parser("variant key", _encoded((seeds.VARIANT,)), call.key, one),
        Parser("constant", _encoded(seeds.CONSTANTS), call.constant, one),
        Parser("target", _encoded(seeds.TARGETS), call.target, one),
        Parser("JIT events", (seeds.EVENTS,), call.events, (), lines),
        Parser("recorded rows", (seeds.RECORDED,), call.recorded, (), lines),
        Parser("deny list", (seeds.DENY,), call.deny, one),
        Parser("benchmark record", (seeds.BENCH,), call.bench, both, values),
        Parser("decoder", (code.text,), call.decoder, (EmulatorError,), (_one_bit,)),
    )


def _encoded(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


def _header(data: bytes, chance: random.Random) -> bytes:
    header, rest = taken_apart(data)
    return put_together(damaged(header, chance), rest)


def _header_json(data: bytes, chance: random.Random) -> bytes:
    header, rest = taken_apart(data)
    return put_together(json_changed(header, chance), rest)


def _manifest(data: bytes, chance: random.Random) -> bytes:
    return with_text(data, damaged(_text_of(data), chance))


def _manifest_json(data: bytes, chance: random.Random) -> bytes:
    """As a writer lays it out, or on one line: readers must take any layout, or refuse it."""
    changed = json_changed(_text_of(data), chance)
    try:
        rows = ",\n".join(f"{json.dumps(name)}:{lined(item)}" for name, item in json.loads(changed).items())
        laid_out = f"{{{rows}}}\n".encode("utf-8", "replace")
    except (AttributeError, ValueError, RecursionError):  # no object, or nothing that a writer would write
        return with_text(data, changed)
    return with_text(data, changed if chance.random() < 0.2 else laid_out)


def _text_of(data: bytes) -> bytes:
    return Bundle.decode(data, "seed").manifest_bytes()


def _bytes(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed and none moved, half of them in the tables at the file's ends."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.choice((chance.randrange(512), -1 - chance.randrange(1_024), chance.randrange(len(out))))
        out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(out)


def _note(data: bytes, chance: random.Random) -> bytes:
    """Bytes of the metadata note changed, and none of the file's layout."""
    at = data.index(b"AMDGPU\0") + 8
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        out[at + chance.randrange(min(800, len(out) - at))] = chance.randrange(256)
    return bytes(out)


def _der(data: bytes, chance: random.Random) -> bytes:
    """The inside of a PEM file changed: a byte, or the length."""
    head, *body, foot = data.strip().split(b"\n")
    der = damaged(base64.b64decode(b"".join(body)), chance)
    return b"\n".join((head, base64.b64encode(der), foot, b""))


def _one_bit(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def judge(parser: Parser, data: bytes) -> str:
    """`accepted`, `refused`, or what else became of an input, in words."""
    before = _peak(anew=True)
    try:
        with in_time(SECONDS):
            parser.call(data)
        outcome = "accepted"
    except parser.refusals as error:
        outcome = _wrong_words(str(error)) or "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome = f"{type(error).__name__}: {error}"[:300]
    grown = _peak() - before
    return f"{outcome}, and {grown >> 10} MiB more memory" if grown > MEMORY else outcome


def _peak(*, anew: bool = False) -> int:
    """The most memory that this process had, in KiB; `anew` counts from now on, where the system can."""
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])
    except (OSError, LookupError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _wrong_words(text: str) -> str:
    if not text.strip():
        return "refused without a word"
    if len(text) > LONGEST:
        return f"refused with {len(text)} characters"
    return "" if visible_text(text) == text else "refused with characters that steer a terminal"


def inputs(parser: Parser, chance: random.Random) -> Iterator[bytes]:
    """Without an end; each is a change of a seed, and now and then of one that was changed before."""
    kept = list(parser.seeds)
    while True:
        data = chance.choice(parser.mutators)(chance.choice(kept), chance)
        if len(kept) == len(parser.seeds) and parser.mutators == (damaged,) and len(data) < 4_096:
            kept.append(data)  # twice changed
        elif len(kept) > len(parser.seeds) and chance.random() < 0.1:
            kept[-1] = data
        yield data


def run(parser: Parser, seed: int, most: int, until: float) -> Tally:
    """Try so many inputs, or until a time of `time.process_time`."""
    tally, chance = Tally(), random.Random(f"{parser.name} {seed}")
    for data in inputs(parser, chance):
        if tally.inputs == most or time.process_time() > until:
            return tally
        outcome = judge(parser, data)
        tally.inputs += 1
        tally.accepted += outcome == "accepted"
        tally.refused += outcome == "refused"
        if outcome not in ("accepted", "refused"):
            tally.other.append((data, outcome))
    raise AssertionError("inputs have no end")


def corpus() -> tuple[tuple[str, bytes], ...]:
    """The inputs that once failed: a parser's slug, and the input. Names begin with slugs, `+` between them."""
    found: list[tuple[str, bytes]] = []
    for path in sorted((FOLDER / "corpus").iterdir()):
        data = path.read_bytes()
        data = base64.b64decode(data) if path.suffix == ".b64" else data
        found += [(slug, data) for slug in path.name.partition(".")[0].split("+")]
    return tuple(found)


def table(rows: list[tuple[str, Tally]]) -> str:
    """As Markdown."""
    lines = ["| parser | inputs | accepted | refused properly | other |", "|---|---|---|---|---|"]
    for name, tally in rows:
        numbers = (tally.inputs, tally.accepted, tally.refused, len(tally.other))
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=120, help="of processor time, shared by all parsers")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="parsers whose name contains this text")
    given = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="aotkern-fuzz-") as folder:
        chosen = [one for one in parsers(Code(Path(folder) / "code"), Path(folder)) if given.only in one.name]
        for parser in chosen:
            until = time.process_time() + given.seconds / len(chosen)
            tally = run(parser, given.seed, sys.maxsize, until)
            rows.append((parser.name, tally))
            for data, outcome in tally.other[:5]:
                shown = base64.b64encode(data).decode() if len(data) < 8_192 else f"{len(data)} bytes"
                sys.stdout.write(f"{parser.name}: {visible_text(outcome)}\n    {shown}\n")
    sys.stdout.write(table(rows) + "\n")
    return 1 if any(tally.other for _, tally in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
