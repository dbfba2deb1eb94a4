"""The proofs: pure comparisons that end in findings. Nothing here prints, formats or decides an exit code.

findings        what an audit says, in one typed form
sides           what is compared: bundles and manifests
identity        machine code against a baseline, variant by variant
resources       registers, LDS, scratch, spills and occupancy against bounds and a baseline
reproducible    a rebuild under different circumstances against the first build
policy          what a release must pass, from TOML
gate            every step of a policy, and one verdict
"""
