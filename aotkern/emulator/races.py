"""Which waves touch the same memory without an order between them.

Every wave's run is cut into segments, at its barriers and where it releases or acquires memory. For each small piece of
LDS and of the buffers three accesses are kept: the last write and two reads of different waves, each as the segment and
the place in the code. A new access races with a kept one when one of the two writes, not both are atomic, they are of
different waves, and the kept one's segment does not happen before the new one's. It does

- within a workgroup, when a barrier stands between them;
- between any two waves, when one published its memory (`buffer_wbl2 sc1`), then touched a cell
  atomically, and the other later touched that cell atomically and then renewed its view
  (`buffer_inv sc1`): the release and acquire of the memory model, carried on through barriers.

So a race is found in whatever order the waves ran. Loads and stores with `sc1` are atomic: that is how
coherent ones are compiled. Two kinds of unordered accesses are harmless and not reported:

- Two waves store the same bytes: layouts that hold an element twice.
- A wave reads from a buffer what another wave of its workgroup overwrites, and the other one had read it at
  the same instruction: a value that several waves load, and one of them stores in place. Its copies are not
  stored; if they were used otherwise the result would depend on the order of waves, which running in another
  order shows. In LDS, where waves read the same tile as a rule, this is no excuse.

The piece of memory is as large as the accesses allow: 16 bytes at first, less as soon as an access is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotkern.emulator.access import Transfer, active, narrow
from aotkern.emulator.arena import Region
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.errors import Race, Touch
from aotkern.emulator.shadow import NOTHING, Known, Shadow
from aotkern.emulator.waves import LANES, Array, Mask, Waves

I64 = np.int64
_MOST_RACES = 64  # pairs of instructions that are kept
_ATOMIC = 1  # in the lowest bit of a place in the code, which is a multiple of four


@dataclass(frozen=True, slots=True)
class _Accesses:
    """What the lanes of one instruction do to a region: arrays `(n, pieces of one access)`.

    Attributes:
        region: Where.
        pieces: Positions in the shadow.
        waves: Of which wave of the launch each is, `(n, 1)`.
        rows: The same as positions among the waves that execute together, `(n, 1)`.
        issued: The segment in which each was issued, `(n, 1)`.
        event: What is kept of it.
    """

    region: Region
    pieces: Array
    waves: Array
    rows: Array
    issued: Array
    event: Array


class Races:
    """Finds races in one launch.

    Args:
        groups: Workgroups of the launch.
        waves: Waves of one workgroup.
    """

    def __init__(self, groups: int, waves: int) -> None:
        self._waves = waves
        total = groups * waves
        self._count = total + 1  # segments; number 0 is none
        self._wave = np.concatenate(([-1], np.arange(total)))
        self._floor = np.zeros(total + 1, I64)
        self._now = np.arange(1, total + 1)
        self._group_floor = np.zeros(groups, I64)
        self._known: dict[int, Known] = {}
        self._known_in: dict[int, Known] = {}
        self._published: dict[int, Known] = {}
        self._pending: dict[int, Known] = {}
        self._cells: dict[int, Known] = {}
        self._found: dict[tuple[tuple[int, bool], tuple[int, bool]], Race] = {}
        self._texts: dict[int, str] = {}
        self._current: Waves
        self._issued: Array | None = None
        self._place = self._flag = 0
        self._scalar = False

    @property
    def races(self) -> tuple[Race, ...]:
        """What was found, each pair of instructions once."""
        return tuple(self._found.values())

    def at(self, waves: Waves, instruction: Instruction, issued: Array | None = None) -> None:
        """The accesses that follow are of this instruction.

        Args:
            waves: Who executes it.
            instruction: The instruction.
            issued: `(waves,)` the segments in which it was issued, when that was earlier.
        """
        self._current, self._issued = waves, issued
        self._place = instruction.pc
        self._texts[instruction.pc] = instruction.text
        self._scalar = instruction.name.startswith("s_")
        self._flag = _ATOMIC if instruction.modifier("sc1") is not None else 0

    def segments(self, waves: Waves) -> Array:
        """The segments in which waves are now, `(waves,)`."""
        return np.asarray(self._now[waves.number + waves.arena.first_wave])

    def barrier(self, groups: Array) -> None:
        """All waves of some workgroups have passed a barrier."""
        waves = (groups[:, None] * self._waves + np.arange(self._waves)).reshape(-1)
        if self._known or self._pending:
            for group in groups.tolist():
                self._share(range(group * self._waves, (group + 1) * self._waves))
        self._group_floor[groups] = self._count
        self._begin(waves)

    def _share(self, waves: range) -> None:
        for table in (self._known, self._pending):
            together = NOTHING
            for wave in waves:
                together = together.joined(table.get(wave, NOTHING))
            if together is not NOTHING:
                table.update(dict.fromkeys(waves, together))

    def _begin(self, waves: Array) -> None:
        """New segments for some waves."""
        first, last = self._count, self._count + len(waves)
        if last > len(self._wave):
            grown = max(last, 2 * len(self._wave))
            self._wave = np.concatenate((self._wave, np.zeros(grown - len(self._wave), I64)))
            self._floor = np.concatenate((self._floor, np.zeros(grown - len(self._floor), I64)))
        self._wave[first:last] = waves
        self._floor[first:last] = self._group_floor[waves // self._waves]
        self._now[waves] = np.arange(first, last)
        self._count = last
        if self._known:
            for segment, wave in zip(range(first, last), waves.tolist(), strict=True):
                if wave in self._known:
                    self._known_in[segment] = self._known[wave]

    def publish(self, waves: Waves) -> None:
        """Waves make all that is known to them visible to whoever acquires what they release from now on."""
        numbers = waves.number + waves.arena.first_wave
        for wave in numbers.tolist():
            group = wave // self._waves
            own = Known({group: int(self._group_floor[group])}, {wave: int(self._now[wave])})
            self._published[wave] = own.joined(self._known.get(wave, NOTHING))
        self._begin(numbers)

    def renew(self, waves: Waves) -> None:
        """Waves see from now on what was published by those whose cells they have read."""
        numbers = waves.number + waves.arena.first_wave
        for wave in numbers.tolist():
            if wave in self._pending:
                self._known[wave] = self._pending[wave].joined(self._known.get(wave, NOTHING))
        self._begin(numbers)

    def loads(self, region: Region, offsets: Array, mask: Mask, size: int, where: Array | None = None) -> None:
        """Lanes read `size` bytes each at flat `offsets`; `where` picks these among the lanes of `mask`."""
        made = self._accesses(region, offsets, mask, size, where)
        if made is None:
            return
        if self._flag:
            self._touch_cells(region, offsets, made, releases=False)
        shadow = _shadow(region)
        written = shadow.write[made.pieces]
        unordered = self._unordered(written, made)
        if unordered is not None:
            if not self._in_lds(region):
                unordered &= ~self._read_alike(written, (shadow.first, shadow.second), made)
            self._report(written, unordered, made, kept_writes=True, writes=False)
        self._keep_reads(shadow, made)

    def stores(
        self,
        region: Region,
        offsets: Array,
        mask: Mask,
        transfer: Transfer,
        data: Array,
        perform: Callable[[], None],
        where: Array | None = None,
    ) -> None:
        """Lanes write `data`, `(count, n)`, at flat `offsets`: `perform` does it."""
        made = self._accesses(region, offsets, mask, transfer.size, where)
        if made is None:
            perform()
            return
        if self._flag:
            self._touch_cells(region, offsets, made, releases=True)
        shadow = _shadow(region)
        self._check_reads(shadow, made)
        written = shadow.write[made.pieces]
        unordered = self._unordered(written, made)
        if unordered is not None:
            same = region.bytes_at(offsets, transfer.size) == _bytes(transfer, data)
            unordered &= ~_by_piece(same, made.pieces.shape)
            self._report(written, unordered, made, kept_writes=True, writes=True)
        perform()
        shadow.write[made.pieces] = made.event
        kept = shadow.write[made.pieces]
        if not np.array_equal(kept, made.event):
            unordered = self._unordered(kept, made)
            if unordered is not None:
                same = region.bytes_at(offsets, transfer.size) == _bytes(transfer, data)
                unordered &= ~_by_piece(same, made.pieces.shape)
                self._report(kept, unordered, made, kept_writes=True, writes=True)

    def atomics(self, region: Region, offsets: Array, mask: Mask, size: int, where: Array | None = None) -> None:
        """Lanes read and write cells of `size` bytes at flat `offsets`."""
        self._flag = _ATOMIC
        made = self._accesses(region, offsets, mask, size, where)
        if made is None:
            return
        self._touch_cells(region, offsets, made, releases=True)
        shadow = _shadow(region)
        self._check_reads(shadow, made)
        written = shadow.write[made.pieces]
        unordered = self._unordered(written, made)
        if unordered is not None:
            self._report(written, unordered, made, kept_writes=True, writes=True)
        shadow.write[made.pieces] = made.event

    def _accesses(self, region: Region, offsets: Array, mask: Mask, size: int, where: Array | None) -> _Accesses | None:
        if not region.writable or not offsets.size:
            return None
        w = self._current
        rows = np.arange(w.count)
        if not self._scalar:
            rows = active(np.broadcast_to(rows[:, None], (w.count, LANES)), mask).reshape(-1)
        rows = rows if where is None else rows[where]
        waves = (w.number + w.arena.first_wave)[rows]
        done = self._now[waves]
        issued = done if self._issued is None else self._issued[rows]
        event = (done << 32) | (self._place | self._flag)
        pieces = _shadow(region).pieces(offsets, size)
        column = (slice(None), None)
        shape = pieces.shape
        events = np.broadcast_to(event[column], shape)
        return _Accesses(region, pieces, waves[column], rows[column], issued[column], events)

    def _unordered(self, kept: Array, made: _Accesses) -> Array | None:
        """Where a kept access is of another wave and not ordered before; None when nowhere."""
        segment = kept >> 32
        wave = self._wave[segment]
        found = (segment != 0) & (wave != made.waves)
        if self._flag:
            found &= (kept & _ATOMIC) == 0
        if not found.any():
            return None
        own_group = wave // self._waves == made.waves // self._waves
        found &= ~(own_group & (segment < self._floor[made.issued]))
        if not found.any():
            return None
        return self._not_acquired(segment, found, made) if self._known_in else found

    def _not_acquired(self, segment: Array, found: Array, made: _Accesses) -> Array | None:
        """Leaves out what atomics order."""
        where = np.nonzero(found)
        issued = np.broadcast_to(made.issued, found.shape)[where]
        pairs, index = np.unique(segment[where] << 32 | issued, return_inverse=True)
        ordered = np.array([self._acquired(int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in pairs])
        found[where] = ~ordered[index.reshape(-1)]
        return found if found.any() else None

    def _acquired(self, segment: int, issued: int) -> bool:
        known = self._known_in.get(issued)
        wave = int(self._wave[segment])
        return known is not None and known.covers(segment, wave, wave // self._waves)

    def _check_reads(self, shadow: Shadow, made: _Accesses) -> None:
        """Report reads of other waves that nothing orders before a write."""
        reads = shadow.first[made.pieces], shadow.second[made.pieces]
        for read, other in (reads, reads[::-1]):
            unordered = self._unordered(read, made)
            if unordered is None:
                continue
            if not self._in_lds(made.region):
                alike = (self._wave[other >> 32] == made.waves) & _same_place(other, read)
                group = self._wave[read >> 32] // self._waves == made.waves // self._waves
                unordered &= ~(alike & group)
            self._report(read, unordered, made, kept_writes=False, writes=True)

    def _read_alike(self, written: Array, reads: Sequence[Array], made: _Accesses) -> Array:
        """Where the wave that wrote had read at this instruction, in the same workgroup."""
        writer = self._wave[written >> 32]
        alike: Array = np.zeros(written.shape, np.bool_)
        for read in reads:
            kept = read[made.pieces]
            alike |= (self._wave[kept >> 32] == writer) & _same_place(kept, made.event)
        return np.asarray(alike & (writer // self._waves == made.waves // self._waves))

    def _in_lds(self, region: Region) -> bool:
        return region is self._current.arena.lds

    def _keep_reads(self, shadow: Shadow, made: _Accesses) -> None:
        """Of the reads of a piece keep two of different waves, those of lower numbers rather."""
        pieces, event = made.pieces.reshape(-1), made.event.reshape(-1)
        first = shadow.first[made.pieces]
        if np.array_equal(first.reshape(-1), event):
            return
        unordered = self._unordered(first, made)
        taken = slice(None) if unordered is None else np.flatnonzero(~unordered.reshape(-1))
        shadow.first[pieces[taken][::-1]] = event[taken][::-1]
        left = shadow.first[pieces] >> 32 != event >> 32
        if not left.any():
            return
        rest = _Accesses(
            made.region,
            pieces[left],
            np.broadcast_to(made.waves, made.pieces.shape).reshape(-1)[left],
            np.broadcast_to(made.rows, made.pieces.shape).reshape(-1)[left],
            np.broadcast_to(made.issued, made.pieces.shape).reshape(-1)[left],
            event[left],
        )
        second = shadow.second[rest.pieces]
        unordered = self._unordered(second, rest)
        if unordered is not None:
            lower = self._wave[second >> 32] > rest.waves
            rest = replace(rest, pieces=rest.pieces[~unordered | lower], event=rest.event[~unordered | lower])
        shadow.second[rest.pieces[::-1]] = rest.event[::-1]

    def _touch_cells(self, region: Region, offsets: Array, made: _Accesses, *, releases: bool) -> None:
        """Cells carry what was published before an atomic to those that touch them later."""
        if not self._cells and not self._published:
            return
        addresses = (offsets + region.address).tolist()
        for wave, address in dict.fromkeys(zip(made.waves[:, 0].tolist(), addresses, strict=True)):
            cell = self._cells.get(address)
            if cell is not None:
                self._pending[wave] = cell.joined(self._pending.get(wave, NOTHING))
            if releases and wave in self._published:
                self._cells[address] = self._published[wave].joined(cell or NOTHING)

    def _report(self, kept: Array, unordered: Array, made: _Accesses, *, kept_writes: bool, writes: bool) -> None:
        """Note races, each pair of instructions once."""
        if not unordered.any():
            return
        where = np.nonzero(unordered)
        places = (kept[where] & 0xFFFFFFFC).tolist()
        for place in sorted(set(places)):
            one, other = sorted(((place, kept_writes), (self._place, writes)))
            key = one, other
            count = places.count(place)
            if key in self._found:
                known = self._found[key]
                self._found[key] = replace(known, count=known.count + count)
            elif len(self._found) < _MOST_RACES:
                index = places.index(place)
                lane, piece = int(where[0][index]), int(where[1][index])
                earlier = Touch(place, self._texts[place], kept_writes, *self._who(int(kept[lane, piece]) >> 32))
                issued = int(self._now[made.waves[lane, 0]])
                later = Touch(self._place, self._texts[self._place], writes, *self._who(issued))
                self._found[key] = self._race(made, lane, piece, earlier, later, count)

    def _race(self, made: _Accesses, lane: int, piece: int, earlier: Touch, later: Touch, count: int) -> Race:
        region, shadow = made.region, _shadow(made.region)
        unit = shadow.unit
        offset = shadow.offset(int(made.pieces[lane, piece]))
        w = self._current
        if self._in_lds(region):
            start = int(w.lds[made.rows[lane, 0], 0])
            return Race("LDS", offset - start, unit, None, earlier, later, count)
        return Race(region.name, offset, unit, region.address + offset, earlier, later, count)

    def _who(self, segment: int) -> tuple[int, int]:
        """Wave in its workgroup, and workgroup."""
        group, wave = divmod(int(self._wave[segment]), self._waves)
        return wave, group


def _shadow(region: Region) -> Shadow:
    if region.shadow is None:
        region.shadow = Shadow(region)
    kept: Shadow = region.shadow
    return kept


def _same_place(one: Array, other: Array) -> Array:
    return np.asarray((one ^ other) & 0xFFFFFFFC == 0)


def _bytes(transfer: Transfer, data: Array) -> Array:
    """What a store writes, `(n, bytes of one access)`."""
    columns: Iterable[Array] = narrow(transfer, data)
    return np.concatenate([np.ascontiguousarray(one)[:, None].view(np.uint8) for one in columns], axis=1)


def _by_piece(same: Array, shape: tuple[int, ...]) -> Array:
    """Bytes that are equal as pieces that are."""
    return np.asarray(same.reshape(*shape, -1).all(axis=-1))
