"""The DeepSeek-V4 sparse-MLA decode family: the kernels that aotkern ships itself, for gfx942 and gfx950.

The folder is `kernels/`; the package is `aotkern_kernels`. Importing it imports nothing heavy: modules that hold
device code import Triton, host modules take tensors and never import torch at run time.

In here:
    layout             record and page formats, fp8 limits, page arithmetic
    reference          what decode attention means, in float64, written for reading

    legacy_partial     gfx942: split-K partial attention
    monolithic         gfx942: one program per row, on request only
    gfx950_partial     gfx950: split-K partial attention
    reducer            both: merges the splits of a row
    ragged_pack        both: copies dense index rows into a ragged list
    legacy_tile, gfx950_tile, constants      device code that these share, one tile module for each design

    decode             host: splits, scratch and launches of one decode step
    decode_call        host: what a decode step is given, checked
    ragged             host: packing index rows, and the persistent buffers of captured graphs
    selectors          how many splits a call gets (pure functions)
    provenance         when the compressed cache may be read without the NaN scrub
    serving            what a server asks, so that exactly that is built ahead
    launchers          the launcher interface that host code takes, Triton's JIT behind it, compile options

    main_writer        inserts rows into the main cache, turning them or not
    compressor_state   what each token leaves behind, and which slot an entry gets
    compressed_writer  compresses tokens into entries: one pass, or two stages
    indexer_writer     the compressor's indexer keys, and plain indexer keys
    gather             copies indexer keys out of their pages
    compressor, record, index_layout, fp8    device code that these share
    write, write_compressed, gather_host     host: validation and launches of the writers and of the gather
    torch_ops          the host functions as torch custom operators
    writer_reference   what the writers must store, byte for byte
    writer_options     compile options of the writers, and where they are declared
    checks             validation that reports every problem of a call at once

Not in here: the inverse rotation after attention, the output projection, and the indexer that picks the top-k.
"""
