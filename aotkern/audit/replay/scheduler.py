"""A continuous-batching scheduler in numbers: which tokens of which requests each step of a server runs. Pure.

A closed loop keeps `concurrency` requests in flight. In each step the running requests come first, in the order of
their arrival: one token for a request that is generating, the rest of the prompt for one that is not, as far as the
token budget goes. What is left admits waiting requests with a first part of their prompts (chunked prefill).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotkern.audit.replay.workload import Limits, Request


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt: positions `start` to `start + tokens`."""

    start: int
    tokens: int

    @property
    def end(self) -> int:
        """Positions of the prompt that are done after this chunk."""
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What one step runs.

    Attributes:
        chunks: Parts of prompts.
        contexts: Positions before the new token, for each request that is generating.
    """

    chunks: tuple[Chunk, ...]
    contexts: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Requests that are generating."""
        return len(self.contexts)

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return self.rows + sum(chunk.tokens for chunk in self.chunks)


@dataclass(slots=True)
class _Running:
    request: Request
    done: int = 0

    @property
    def generating(self) -> bool:
        return self.done >= self.request.prompt

    @property
    def finished(self) -> bool:
        return self.done >= self.request.prompt + self.request.output - 1


def steps(requests: Sequence[Request], limits: Limits, concurrency: int) -> Iterator[Step]:
    """Serve the requests to the end.

    The first generated token comes out of the step that ends the prompt; each later one takes a step of its own.
    """
    waiting = deque(requests)
    running: list[_Running] = []
    while waiting or running:
        chunks: list[Chunk] = []
        contexts: list[int] = []
        budget = limits.batched_tokens
        for state in running:
            budget -= _schedule(state, budget, chunks, contexts)
        while waiting and budget and len(running) < min(limits.sequences, concurrency):
            running.append(_Running(waiting.popleft()))
            budget -= _schedule(running[-1], budget, chunks, contexts)
        yield Step(tuple(chunks), tuple(contexts))
        running = [state for state in running if not state.finished]


def _schedule(state: _Running, budget: int, chunks: list[Chunk], contexts: list[int]) -> int:
    """Give one request its part of a step; how many tokens that takes."""
    if not budget:
        return 0
    if state.generating:
        contexts.append(state.done)
        state.done += 1
        return 1
    tokens = min(state.request.prompt - state.done, budget)
    chunks.append(Chunk(state.done, tokens))
    state.done += tokens
    return tokens
