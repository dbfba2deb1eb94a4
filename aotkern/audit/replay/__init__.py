"""Replay: how many binaries a served workload would compile, by driving a family's host code without a GPU.

lengths    the request lengths that a benchmark's seed stands for
workload   what is served, and the arms to compare, from TOML
scheduler  a continuous-batching scheduler: steps, from requests
arms       what a launch costs in each arm: Triton's JIT, or a lookup in prebuilt variants
drive      one arm from the first graph capture to the last request
"""
