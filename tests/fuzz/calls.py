"""How each parser is called with bytes that may be anything, and what must hold of what it accepts."""

from __future__ import annotations

from pathlib import Path

from seeds import FILE, ONE, PLAIN, SIGNATURES, TRUST, TWO, Code
from vouching import GFX942, NOW, sealed

from aotkern import codeobject
from aotkern.arguments import Pointer
from aotkern.audit.coverage import domain
from aotkern.audit.jit import budget, events
from aotkern.audit.jit.judge import judge
from aotkern.audit.policy import Policy
from aotkern.audit.replay.workload import Workload
from aotkern.bench import Run
from aotkern.bundle import Bundle
from aotkern.codeobject import CodeObject
from aotkern.deny import Deny
from aotkern.distribution.artifact import Artifact, Index, media_type_of
from aotkern.distribution.reference import Reference
from aotkern.drivers.null import NullDriver
from aotkern.emulator.disassembler import Listing
from aotkern.errors import InputError, IntegrityError, MissError
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.lock import Lock
from aotkern.manifest import Manifest
from aotkern.report import jit as jit_report
from aotkern.report import jit_machine
from aotkern.spec import Constant, VariantKey
from aotkern.target import Target
from aotkern.trace import Trace
from aotkern.triton_bridge.budget import Budget
from aotkern.triton_bridge.recording import collect
from aotkern.trust import SigningKey, require
from aotkern.trust.dsse import parse as parse_signatures
from aotkern.trust.memory import Memory
from aotkern.trust.statement import audits
from aotkern.trust.trustfile import Trust

_TRUST = Trust.parse(TRUST.encode(), "trust.toml")
_GENUINE = {envelope.payload for envelope in parse_signatures(SIGNATURES, FILE)}


class Calls:
    """One method for each parser."""

    def __init__(self, code: Code, folder: Path) -> None:
        self._code, self._folder = code, folder

    def _file(self, data: bytes, name: str = "input") -> Path:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def bundle(self, data: bytes) -> None:
        bundle = Bundle.decode(data, "x.aotk")
        bundle.verify()
        assert Manifest.parse(bundle.manifest_bytes(), "m").to_bytes() == bundle.manifest_bytes()

    def loaded(self, data: bytes) -> None:
        """Load it for a device without a driver, and launch: what is wrong is refused before the driver sees it."""
        driver = NullDriver((GFX942,))
        bundle = LoadedBundle(Bundle.decode(data, "x.aotk"), driver, None, "error", None, Hooks())
        pointers = [Pointer(4096 * (1 + at), "fp32", 64) for at in range(2)]
        for name in bundle:
            for n in (16, 17):
                try:
                    bundle[name][1](*pointers, n, 64)
                except MissError:
                    continue
        bundle.preload()

    def eager_and_lazy(self, data: bytes) -> None:
        """Both readers accept the same manifests, and find the same in them."""
        answers = []
        for lazily in (False, True):
            try:
                manifest = Manifest.parse(data, "m", lazily=lazily)
                manifest.check("m")
                answers.append(manifest.to_bytes())
            except IntegrityError as error:
                answers.append(None)
                refusal = error
        assert answers[0] == answers[1], "the eager and the lazy reader disagree"
        if answers[0] is None:
            raise refusal

    def code_object(self, data: bytes) -> None:
        found = codeobject.read(data, "x")
        assert CodeObject.from_json(found.to_json(), "x") == found
        assert found.identity

    def trust(self, data: bytes) -> None:
        """Whatever it says, it does not let one of the two signers decide alone unless it names its key."""
        trust = Trust.read(self._file(data, "trust.toml"))
        assert trust.rules
        assert all(0 < rule.threshold <= len(rule.keys) for rule in trust.rules)
        assert all(key.public.id == name for name, key in trust.keys.items())

    def memory(self, data: bytes) -> None:
        memory = Memory(self._file(data, "memory/newest.json"))
        assert memory.lowest("pack", GFX942, _TRUST) >= 0

    def signatures(self, data: bytes) -> None:
        """Accepted is only what both keys have signed: the genuine payload."""
        approval = require(PLAIN, FILE, data, _TRUST, NOW)
        assert approval.statement.to_bytes() in _GENUINE
        genuine = {
            (signature.key, signature.value)
            for part in (sealed(approval.statement.to_bytes(), ONE), sealed(approval.statement.to_bytes(), TWO))
            for envelope in parse_signatures(part, FILE)
            for signature in envelope.signatures
        }
        there = {(s.key, s.value) for e in parse_signatures(data, FILE) for s in e.signatures}
        assert genuine <= there, "accepted without both genuine signatures"

    def payload(self, data: bytes) -> None:
        """Both keys sign whatever it is; it must still be true of the bundle."""
        if not data:
            return
        approval = require(PLAIN, FILE, sealed(data, ONE, TWO), _TRUST, NOW)
        statement = approval.statement
        assert statement.to_bytes() == data
        assert (statement.digest, statement.target, statement.name) == (approval.bundle.digest, GFX942, "pack")
        assert statement.manifest == approval.bundle.manifest.digest

    def report(self, data: bytes) -> None:
        assert all(row.verdict in ("clean", "findings", "unknown") for row in audits(data, GFX942, "r.json"))

    def pem(self, data: bytes) -> None:
        for passphrase in (None, b"secret"):
            try:
                key = SigningKey.from_pem(data, passphrase, "key.pem")
            except InputError as error:
                refusal = error
                continue
            assert key.public.verifies(key.sign(b"x"), b"x")
            return
        raise refusal

    def policy(self, data: bytes) -> None:
        policy = Policy.read(self._file(data, "policy.toml"))
        assert any((policy.verify, policy.identity, policy.resources, policy.reproducible, policy.coverage)) or any(
            (policy.numerics, policy.replay, policy.jit)
        )

    def workload(self, data: bytes) -> None:
        workload = Workload.read(self._file(data, "workload.toml"))
        assert workload.arms
        assert all(workload.arm(arm.name) for arm in workload.arms)

    def budget(self, data: bytes) -> None:
        found = budget.read(self._file(data, "budget.toml"))
        assert all(row.compiles is None or row.compiles >= 0 for row in found.phases)

    def domain(self, data: bytes) -> None:
        assert all(calls.kernel for calls in domain.read(self._file(data, "domain.toml")))

    def lock(self, data: bytes) -> None:
        found = Lock.read(self._file(data, "aotkern.lock"))
        found.write(self._folder / "again.lock")
        assert Lock.read(self._folder / "again.lock") == found

    def trace(self, data: bytes) -> None:
        found = Trace.parse(data, "t.jsonl")
        assert Trace.parse(found.to_bytes(), "again") == found

    def artifact(self, data: bytes) -> None:
        found = Artifact.parse(data, "manifest")
        assert media_type_of(data, "manifest")
        assert Artifact.parse(found.to_bytes(), "again") == found

    def index(self, data: bytes) -> None:
        found = Index.parse(data, "index")
        assert Index.parse(found.to_bytes(), "again") == found

    def reference(self, data: bytes) -> None:
        found = Reference.parse(_text(data))
        assert str(found) == _text(data)

    def key(self, data: bytes) -> None:
        found = VariantKey.parse(_text(data))
        assert VariantKey.parse(str(found)) == found

    def constant(self, data: bytes) -> None:
        found = Constant.parse(_text(data))
        assert Constant.of(found.value).text == found.text

    def target(self, data: bytes) -> None:
        found = Target.parse(_text(data))
        assert Target.parse(str(found)) == found

    def events(self, data: bytes) -> None:
        """Damaged lines are counted; the rest makes a report."""
        log = events.read([data.decode("utf-8", "replace").splitlines()])
        report = judge(log, Budget("observe", ()))
        assert report.summary
        assert jit_report.markdown(report)
        assert jit_machine.json_document(report)
        assert len(report.findings) >= 0

    def recorded(self, data: bytes) -> None:
        folder = self._file(data, "rows/a.jsonl").parent
        trace = collect(folder)
        assert Trace.parse(trace.to_bytes(), "again") == trace

    def deny(self, data: bytes) -> None:
        """Given as a text and as a file."""
        deny = Deny.read(f"@{self._file(data, 'deny.txt')}")
        assert Deny.read(_text(data)) is not None
        manifest = Bundle.decode(self._code.bundle, "x").manifest
        assert all(deny.of(variant) in ("", *deny.entries) for variant in manifest.variants)

    def bench(self, data: bytes) -> None:
        found = Run.read(self._file(data, "bench.json"))
        again = found.dumps().encode()
        assert Run.read(self._file(again, "again.json")) == found

    def decoder(self, data: bytes) -> None:
        """From its first byte to where it is no code any more."""
        listing = Listing(data, GFX942)
        at = 0
        while at < len(data):
            instruction = listing.at(at)
            assert instruction.end > at
            at = instruction.end


def _text(data: bytes) -> str:
    """Texts of any characters, also of halves of pairs."""
    return data.decode("utf-8", "surrogateescape")
