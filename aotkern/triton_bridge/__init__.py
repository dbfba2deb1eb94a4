"""The room between Triton programs and aotkern: what watches a running program. Triton is imported by the program only.

surroundings its environment, its rank, its standard error
sink         where event lines go: a file of one process, or memory
slots        being heard in a single-slot hook without taking the slot from the program
imports      acting right after the program has imported a module
describe     a compile in words: key, argument values, place in the program
recorder     start and end of every compile as events
tuning       autotuning as events of its own
budget       what each phase allows
gate         budgets that are enforced while the program runs
subject      what a compile is of
observers    the callables that are put on Triton
watch        putting them on a Triton and taking them off again
session      one watch from beginning to end
paper        a device without hardware, to run a JIT path anywhere
child        what an injected `sitecustomize` starts in a watched process
specialised  what Triton asks its compiler for, as a request that a trace can hold and a bundle can answer
seam         a wrapper at the place where Triton looks its compiler up, put on and taken off
written      kernels of generated modules, as modules of their own
tracing      recording those requests as rows of a trace
recording    a recording from beginning to end
shelf        which prebuilt variant answers a request, and why none does; pure
prebuilt     Triton's `CompiledKernel`, made from a variant of a bundle
serve        answering Triton's requests, autotuners' too
installed    `aotkern.install`, and the same in an injected process or a plugin
pytest_plugin    a marker and a fixture for tests that must not compile

What watches imports standard library modules, `aotkern.errors`, `aotkern.spec` and `aotkern.target` only, because it
runs inside programs that did not ask for it; what serves imports what reads bundles, too. Triton is imported inside
functions that its own calls have led to. Not in here: what the events mean (`aotkern.audit.jit`).
"""
