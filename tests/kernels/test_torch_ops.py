"""The custom operators: torch's own checks of their schemas and fakes, and torch.compile taking them whole."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from attention import GFX950, as_reference, assert_close, query, ragged, random_cache, random_rows
from mended import mend_interpreter

from aotkern.errors import InputError
from kernels import (
    decode,
    fp8,
    gfx950_partial,
    gfx950_tile,
    main_writer,
    ragged_pack,
    record,
    reducer,
    reference,
    torch_ops,
    write,
    write_compressed,
)
from kernels import ragged as ragged_host
from kernels.decode_call import Segment

SCALE = 512**-0.5


@pytest.fixture(autouse=True)
def launcher(interpreted, monkeypatch):
    """The operators launch through Triton's interpreter."""
    mend_interpreter(monkeypatch)
    monkeypatch.setattr(torch_ops, "_devices", {})
    torch_ops.register()
    made = interpreted(gfx950_tile, gfx950_partial, reducer, ragged_pack, main_writer, record, fp8)
    torch_ops.use(made, GFX950)
    return made


@pytest.fixture
def call():
    """Arguments of one decode step with an extra segment and a sink."""
    main = Segment(random_cache(1, 24, 4, fnuz=False, padding=64), ragged(random_rows(3, 96, (8, 5)), spare=5))
    extra = Segment(random_cache(2, 64, 2, fnuz=False, padding=16), ragged(random_rows(4, 128, (2, 7))))
    sink = torch.tensor([0.5, -1.0, 2.0, 9.0])
    q = query(5, 2, 3)
    wanted = reference.attend(as_reference(q, main, extra, sink, fnuz_main=False))
    return (q, *main.pointers, *extra.pointers, sink, SCALE, 2, False, False), wanted


def test_decode_is_the_host_function(call):
    arguments, wanted = call
    assert_close(torch.ops.aotkern.decode(*arguments), wanted)
    out = torch.zeros(arguments[0].shape)
    torch.ops.aotkern.decode_into(out, *arguments)
    assert_close(out, wanted)


def test_torchs_own_checks_of_decode(call):
    arguments, _ = call
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.aotkern.decode.default, arguments, test_utils=checks)
    out = torch.zeros(arguments[0].shape)
    torch.library.opcheck(torch.ops.aotkern.decode_into.default, (out, *arguments), test_utils=checks)


def test_torchs_own_checks_of_packing():
    dense = torch.tensor([[3, 1, -1], [7, 8, 9]], dtype=torch.int32)
    checks = ("test_schema", "test_faketensor")
    # Whole rows, so that no entry of the result is undefined.
    lengths = torch.tensor([3, 3])
    torch.library.opcheck(torch.ops.aotkern.pack_rows.default, (dense, lengths, -1), test_utils=checks)
    indices, indptr = torch.ops.aotkern.pack_rows(dense, None, -1)
    assert indptr.tolist() == [0, 2, 5]
    assert indices[:5].tolist() == [3, 1, 7, 8, 9]


def test_torchs_own_checks_of_a_writer():
    kv = query(1, 2, 1)[:, 0]
    cache = random_cache(2, 2, 4, fnuz=False)
    slots = torch.tensor([5, -1])
    checks = ("test_schema", "test_faketensor")
    arguments = (cache, kv, slots, None, None)
    torch.library.opcheck(torch.ops.aotkern.write_main_cache.default, arguments, test_utils=checks)


def test_compile_takes_the_operators_whole(call):
    arguments, wanted = call

    def step(q, *rest):
        return torch.ops.aotkern.decode(q * 1, *rest) + 0

    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    assert_close(compiled(*arguments), wanted)
    called = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum("aotkern.decode" in name for name in called) == 1
    assert len(graphs) == 1


def test_compile_keeps_the_order_of_a_write_and_a_read():
    kv = query(1, 2, 1)[:, 0]
    slots = torch.tensor([5, 6])

    def step(cache):
        torch.ops.aotkern.write_main_cache(cache, kv, slots, None, None)
        return cache.clone()

    torch._dynamo.reset()
    written = torch.compile(step, fullgraph=True, backend="aot_eager")(random_cache(2, 2, 4, fnuz=False))
    expected = step(random_cache(2, 2, 4, fnuz=False))
    np.testing.assert_array_equal(written.numpy(), expected.numpy())


def test_operators_of_a_device_that_nothing_was_said_of(call, monkeypatch):
    arguments, _ = call
    monkeypatch.setattr(torch_ops, "_devices", {})
    with pytest.raises(InputError, match=r"torch_ops\.use"):
        torch.ops.aotkern.decode(*arguments)


def test_schemas_name_the_parameters_of_the_functions_in_order():
    for operator in torch_ops.OPERATORS:
        schema = getattr(torch.ops.aotkern, operator.function.__name__).default._schema
        assert [item.name for item in schema.arguments] == list(inspect.signature(operator.function).parameters)


def test_importing_the_module_does_not_import_torch():
    root = Path(__file__).parents[2]
    code = "import sys, kernels.torch_ops; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


HOSTS = {
    "decode": decode.decode,
    "pack_rows": ragged_host.pack_rows,
    "write_main_cache": write.write_main_cache,
    "write_index_keys": write.write_index_keys,
    "store_compressor_state": write_compressed.store_compressor_state,
    "compressed_slots": write_compressed.compressed_slots,
    "write_compressed_cache": write_compressed.write_compressed_cache,
    "write_indexer_cache": write_compressed.write_indexer_cache,
}


@pytest.mark.parametrize("name", HOSTS)
def test_every_scalar_choice_of_a_host_function_is_an_argument_of_its_operator(name):
    schema = {argument.name for argument in getattr(torch.ops.aotkern, name).default._schema.arguments}
    fixed_by_the_platform = {"launcher", "platform", "arch"} | ({"fnuz"} if name == "write_main_cache" else set())
    spelt_out = {"main", "extra", "out", "monolithic", "rotation", "step"}
    asked = set(inspect.signature(HOSTS[name]).parameters) - fixed_by_the_platform - spelt_out
    assert asked <= schema
