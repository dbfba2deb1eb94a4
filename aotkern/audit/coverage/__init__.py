"""Coverage: which calls find a prebuilt variant, told before anything runs, by the very rule that the loader applies.

catalogue  the variants to choose from, kernel by kernel
domain     what a program may call, declared in TOML: ranges and sets of arguments
classes    the finite classes that a domain falls into, as seen by one kernel's variants
proof      every class of a domain against the variants
trace      the calls of a recorded run against the variants
"""
