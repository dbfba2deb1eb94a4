"""A server on paper: the launches that one decode layer of each kind makes in a step, for replays of a workload.

On torch's `meta` device tensors have shapes, strides and dtypes and nothing in them. On a GPU attention has work to do:
caches hold finite records, queries are random, and every row has as many entries as a request of `positions` positions
has, at random slots; what is written are zeros, into a slot of its own for each token. Every launch goes through the
family's own host code, so that a replay asks for exactly the variants that serving asks for.

Simulated are the writers of all caches, the indexer gather of prompts, the packing of index rows, and decode attention;
attention over prompts, the indexer's logits and its top-k are no part of this family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from . import layout, write, write_compressed
from .decode import decode
from .decode_call import Segment
from .gather_host import gather_indexer_cache
from .launchers import Launcher, Platform
from .provenance import asks_adaptive, may_trust_extra
from .ragged import Ragged, RaggedBuffers, pack_rows
from .write_compressed import CompressorStep

if TYPE_CHECKING:
    import torch

C4A_RATIO: Final = 4
C128A_RATIO: Final = 128
_STATE_BLOCK: Final = {C4A_RATIO: 4, C128A_RATIO: 8}
_EPS: Final = 1e-6
_FINITE: Final = 112
"""Bytes below are finite numbers as fp8 of either dialect and as halves of bf16, and scales of at most 2^-16."""


class Chunk(Protocol):
    """A part of a prompt."""

    @property
    def end(self) -> int:
        """Positions that are done after it."""


class Step(Protocol):
    """What one step of a server runs."""

    @property
    def chunks(self) -> Sequence[Chunk]:
        """Parts of prompts."""

    @property
    def rows(self) -> int:
        """Requests that generate a token."""

    @property
    def tokens(self) -> int:
        """Tokens in all."""


@dataclass(frozen=True)
class Settings:
    """What a workload says about the server.

    Attributes:
        arch: Architecture whose kernels are launched.
        design: Which attention kernels: "gfx942" or "gfx950".
        specialised_gather: Use the gather with compile-time counts.
        compute_units: Of the device.
        heads: Query heads on this device.
        topk: Compressed entries that the indexer picks for each row.
        model_length: Most positions of a request.
        blocks: Blocks of the model's cache manager.
        requests: Most requests at a time.
        positions: Of a request whose rows are attended to; only a GPU sees them.
    """

    arch: str
    design: str
    specialised_gather: bool
    compute_units: int
    heads: int
    topk: int
    model_length: int
    blocks: int
    requests: int
    positions: int = 9216

    @property
    def entries(self) -> dict[str, int]:
        """Entries of a row, by kind of layer."""
        return {
            "main": min(layout.SLIDING_WINDOW, self.positions),
            "c4a": min(self.topk, self.positions // C4A_RATIO),
            "c128a": self.positions // C128A_RATIO,
        }

    @property
    def all_entries(self) -> int:
        """Width of the index rows of a layer that attends to all compressed entries."""
        entries = -(-self.model_length // C128A_RATIO)
        return -(-entries // 128) * 128


def open_server(launcher: Launcher, device: str, settings: Mapping[str, Any]) -> Server:
    """The server that a replay drives; `device` is "meta" or a GPU."""
    import torch  # noqa: PLC0415 - the modules of this package are imported where there is no torch

    return Server(launcher, torch.zeros(1, dtype=torch.uint8, device=device), Settings(**settings))


class Server:
    """The launches of captured graphs and of steps outside of them; `like` is a tensor on the device."""

    def __init__(self, launcher: Launcher, like: torch.Tensor, settings: Settings) -> None:
        self._launcher, self._like, self._settings = launcher, like, settings
        self._holds_data = like.device.type == "cuda"
        # The fp8 dialect follows the chip, the design follows the arm.
        dialect = Platform.of(settings.arch, settings.compute_units).fnuz_main
        design = "gfx942" if settings.design == "gfx942" else "gfx950"
        self._platform = Platform(design, dialect, settings.compute_units)
        self._main = self._pages(layout.MAIN_BLOCK_SIZE, layout.RECORD_BYTES)
        self._c4a = self._pages(layout.C4A_BLOCK_SIZE, layout.RECORD_BYTES)
        self._c128a = self._pages(layout.C128A_BLOCK_SIZE, layout.RECORD_BYTES)
        self._index = self._pages(layout.C4A_BLOCK_SIZE, layout.INDEX_RECORD_BYTES)
        self._cos_sin = self._zeros(1, layout.ROPE)
        widths = {"main": layout.SLIDING_WINDOW, "c4a": settings.topk, "c128a": settings.all_entries}
        like = self._zeros(1, dtype="int32")
        self._buffers = {name: RaggedBuffers(like, settings.requests, width) for name, width in widths.items()}
        self._widths = widths

    def capture(self, rows: int) -> None:
        """The launches that a graph of a decode step of `rows` rows holds."""
        self._decode(rows, captured=True)

    def prepare(self, rows: int) -> None:
        """What a step that replays a graph of `rows` rows launches outside of the graph: its index rows."""
        for name in self._widths:
            self._packed(name, rows)

    def step(self, step: Step) -> None:
        """The launches of a step outside of graphs."""
        self._write(step)
        self._gather(step.chunks)
        if step.rows:
            self._decode(step.rows, captured=False)

    def _zeros(self, *shape: int, dtype: str = "float32") -> torch.Tensor:
        import torch  # noqa: PLC0415

        return self._like.new_zeros(shape, dtype=getattr(torch, dtype))

    def _pages(self, block_size: int, record: int) -> torch.Tensor:
        """A paged cache with padded pages, as its kernels see it."""
        stride = layout.page_stride(block_size) if record == layout.RECORD_BYTES else block_size * record
        pool = self._zeros(self._settings.blocks, stride, dtype="uint8")
        if self._holds_data:
            pool.random_(0, _FINITE)
        return pool.as_strided((self._settings.blocks, block_size, record), (stride, record, 1))

    def _packed(self, name: str, rows: int) -> Ragged:
        dense = self._zeros(rows, self._widths[name], dtype="int32")
        lengths = self._zeros(rows, dtype="int32")
        cache = {"main": self._main, "c4a": self._c4a, "c128a": self._c128a}[name]
        if self._holds_data:
            dense.random_(0, cache.shape[0] * cache.shape[1])
            lengths.fill_(self._settings.entries[name])
        return pack_rows(self._launcher, dense, lengths, num_rows=cache.shape[0] * cache.shape[1])

    def _decode(self, rows: int, *, captured: bool) -> None:
        """Attention of one layer of each kind: window only, top entries, all entries."""
        q = self._zeros(rows, self._settings.heads, layout.HEAD_DIM, dtype="bfloat16")
        if self._holds_data:
            q.normal_(0, 0.125)
        sink = self._zeros(self._settings.heads)
        views = {name: self._packed(name, rows) for name in self._widths}
        if captured:
            views = {name: self._buffers[name].refill(view, self._platform.design) for name, view in views.items()}
        main = Segment(self._main, views["main"])
        layers = (
            (None, 1),
            (Segment(self._c4a, views["c4a"]), C4A_RATIO),
            (Segment(self._c128a, views["c128a"]), C128A_RATIO),
        )
        for extra, ratio in layers:
            asked = {"design": self._platform.design, "has_extra": extra is not None}
            decode(
                self._launcher,
                self._platform,
                q,
                main,
                extra,
                sink=sink,
                out=q.new_empty(q.shape),
                adaptive=asks_adaptive(compress_ratio=ratio, built_for_capture=captured, **asked),
                trust_extra=may_trust_extra(cache_dtype="fp8_ds_mla", has_transfer_connector=False, **asked),
            )

    def _write(self, step: Step) -> None:
        """Fresh rows into the main cache, and the compressor of both ratios with its indexer keys."""
        tokens = step.tokens
        long = {name: self._zeros(tokens, dtype="int64") for name in ("slots", "positions", "state_slots")}
        if self._holds_data:
            long["slots"].copy_(long["slots"].new_ones(tokens).cumsum(0))
        kv = self._zeros(tokens, layout.HEAD_DIM, dtype="bfloat16")
        rotation = (long["positions"], self._cos_sin)
        write.write_main_cache(
            self._launcher, self._main, kv, long["slots"], fnuz=self._platform.fnuz_main, rotation=rotation
        )
        for ratio, cache, head_dim in (
            (C4A_RATIO, self._c4a, layout.HEAD_DIM),
            (C4A_RATIO, self._index, layout.INDEX_HEAD_DIM),
            (C128A_RATIO, self._c128a, layout.HEAD_DIM),
        ):
            self._compress(step, ratio, cache, head_dim)

    def _compress(self, step: Step, ratio: int, cache: torch.Tensor, head_dim: int) -> None:
        tokens, width = step.tokens, write_compressed.state_width(ratio, head_dim)
        state = CompressorStep(
            state=self._zeros(self._settings.requests, _STATE_BLOCK[ratio], 2 * width),
            positions=self._zeros(tokens, dtype="int64"),
            state_slots=self._zeros(tokens, dtype="int64"),
            token_to_req=self._zeros(tokens, dtype="int32"),
            state_table=self._zeros(self._settings.requests, self._table_width, dtype="int32"),
            ratio=ratio,
        )
        kv = self._zeros(tokens, width)
        ape = self._zeros(ratio, width)
        write_compressed.store_compressor_state(self._launcher, state, kv, kv.new_zeros(kv.shape), ape)
        slots = self._zeros(tokens, dtype="int64")
        write_compressed.compressed_slots(
            self._launcher,
            slots,
            state.positions,
            state.token_to_req,
            state.state_table,
            ratio=ratio,
            block_size=cache.shape[1],
        )
        weight = self._zeros(head_dim, dtype="bfloat16")
        if head_dim == layout.INDEX_HEAD_DIM:
            arguments = (self._launcher, cache, slots, state, weight, self._cos_sin)
            write_compressed.write_indexer_cache(*arguments, eps=_EPS)
            return
        two_stages = ratio == C128A_RATIO and len(step.chunks) > 0 and step.rows == 0
        write_compressed.write_compressed_cache(
            self._launcher,
            cache,
            slots,
            state,
            weight,
            self._cos_sin,
            eps=_EPS,
            sanitize=self._platform.design == "gfx950",
            num_splits=write_compressed.compress_splits(tokens, ratio, self._platform.compute_units)
            if two_stages
            else None,
        )

    @property
    def _table_width(self) -> int:
        """Columns of a block table."""
        return -(-self._settings.model_length // layout.MODEL_BLOCK)

    def _gather(self, chunks: Sequence[Chunk]) -> None:
        """The indexer keys of every prompt that has a part in the step, up to the end of that part."""
        lengths = [chunk.end // C4A_RATIO for chunk in chunks]
        total = sum(lengths)
        if not total:
            return
        gather_indexer_cache(
            self._launcher,
            self._index,
            self._zeros(total, layout.INDEX_HEAD_DIM, dtype="uint8"),
            self._zeros(total),
            self._zeros(len(lengths), self._table_width, dtype="int32"),
            self._zeros(len(lengths) + 1, dtype="int32"),
            self._zeros(total, dtype="int32"),
            layout="normal",
            arch="gfx942" if self._settings.specialised_gather else "gfx950",
        )
