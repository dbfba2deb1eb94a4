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
pytest_plugin    a marker and a fixture for tests that must not compile

Only standard library modules, `aotkern.errors`, `aotkern.spec` and `aotkern.target` are imported, because this code
runs inside programs that did not ask for it. Not in here: what the events mean (`aotkern.audit.jit`).
"""
