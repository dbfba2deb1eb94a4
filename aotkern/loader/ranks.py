"""Whether all ranks of a program would be served the same, asked before it starts.

A variant that is missing on one rank of many makes that rank compile in the middle of serving, while the others wait in
a collective until their watchdog kills them. A comparison before the first request costs one exchange of a short text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from aotkern.bundle import Bundle
from aotkern.canonical import dumps
from aotkern.errors import IntegrityError, Problem

Gather = Callable[[str], Sequence[str]]
"""Sends this rank's text to all and returns everyone's, in the order of the ranks."""


def agree(bundles: Iterable[Bundle], gather: Gather) -> None:
    """Hold the bundles of this rank against those of all others; to be called by all of them.

        def gather(text):
            texts = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(texts, text)
            return texts

        agree(installation.bundles, gather)

    Bundles are compared by the digests of their manifests, target by target; where a file lies and what is said of its
    build do not count.

    Args:
        bundles: What this rank would be served.
        gather: How texts are exchanged.

    Raises:
        IntegrityError: On every rank alike, if any two differ: it names each rank that differs from the first, with
            both sides' digests.
    """
    mine = sorted([str(bundle.manifest.target), str(bundle.manifest.digest)] for bundle in bundles)
    texts = list(gather(dumps(mine)))
    first = texts[0] if texts else ""
    problems = [
        Problem(f"bundles of rank {rank}", f"those of rank 0: {_words(first)}", _words(text))
        for rank, text in enumerate(texts)
        if text != first
    ]
    if not texts or dumps(mine) not in texts:
        problems.append(Problem("gather", "the texts of all ranks, this one's among them", f"{len(texts)} texts"))
    if problems:
        raise IntegrityError(problems)


def _words(text: str) -> str:
    try:
        rows = json.loads(text)
        return ", ".join(f"{target} {digest.rpartition(':')[2][:12]}" for target, digest in rows) or "none"
    except (ValueError, TypeError):
        return repr(text)[:60]
