"""The newest release that was ever accepted here, kept apart from the delivered files.

What lies beside a bundle can be replaced together with it: whoever delivers an older release can deliver its
signature, too. So the highest accepted sequence number of each bundle name and target is written down in a file of its
own, and no lower one is accepted again. A statement that the trust file revokes is forgotten: that is the way back
from a number that should never have been signed.

    {"format":"aotkern.trust-memory/1","newest":{"aotkern hip:gfx942":{"sequence":7,"statement":"sha256:..."}}}
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotkern import bundle as bundle_file
from aotkern.canonical import dumps, loads
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem
from aotkern.fields import Fields
from aotkern.target import Target
from aotkern.trust.statement import Statement
from aotkern.trust.trustfile import Trust

FORMAT = "aotkern.trust-memory/1"
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Accepted:
    """A release that was accepted.

    Attributes:
        sequence: Its number.
        statement: Digest of the statement.
    """

    sequence: int
    statement: Digest


@dataclass(frozen=True, slots=True)
class Memory:
    """The file.

    Attributes:
        path: Where it is; it need not exist yet.
    """

    path: Path

    def lowest(self, name: str, target: Target, trust: Trust) -> int:
        """The lowest sequence number that may be accepted now: the highest that was.

        Args:
            name: Of the bundle.
            target: Of the bundle.
            trust: A statement that it revokes does not count.

        Raises:
            InputError: The file cannot be read, or is not such a file: forgetting in silence would be a way in.
        """
        accepted = self._read().get(f"{name} {target}")
        if accepted is None or accepted.statement in trust.revoked:
            return 0
        return accepted.sequence

    def remember(self, statement: Statement) -> None:
        """Write down that a release was accepted.

        Raises:
            InputError: The file cannot be read or written.
        """
        accepted = Accepted(statement.sequence, statement.id)
        with self._alone():
            rows = {**self._read(), f"{statement.name} {statement.target}": accepted}
            value = {
                name: {"sequence": row.sequence, "statement": str(row.statement)} for name, row in sorted(rows.items())
            }
            data = dumps({"format": FORMAT, "newest": value}).encode()
            try:
                bundle_file.publish(self.path, data)
            except OSError as error:
                raise self._refused("a file that can be written", error) from error

    def _read(self) -> dict[str, Accepted]:
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._refused("a file that can be read", error) from error
        where = str(self.path)
        if len(data) > MAX_BYTES:
            raise InputError.one(where, f"at most {MAX_BYTES} bytes", "more")
        try:
            value = loads(data, where)
        except IntegrityError as error:
            raise InputError(error.problems) from None
        problems: list[Problem] = []
        form = Fields(value, where, ("format", "newest"), problems)
        if form.get("format") != FORMAT:
            problems.append(Problem(f"{where}.format", FORMAT, repr(form.get("format"))[:80]))
        found: dict[str, Accepted] = {}
        for name, row in form.objects("newest").items():
            exact = Fields({key: row.get(key) for key in row.names}, row.where, ("sequence", "statement"), problems)
            statement = exact.parsed("statement", Digest.parse) or Digest("")
            found[name] = Accepted(exact.count("sequence"), statement)
        if problems:
            raise InputError(problems)
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time, by a lock on the folder: the file itself is replaced."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (folder / f".{self.path.name}.lock").open("w")
        except OSError as error:
            raise self._refused("a folder that can be written", error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _refused(self, expected: str, error: OSError) -> InputError:
        return InputError.one(str(self.path), expected, error.strerror or str(error))
