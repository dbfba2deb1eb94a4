"""The proofs: pure comparisons that end in findings. Nothing here prints, formats or decides an exit code.

findings        what an audit says, in one typed form
identity        machine code against a baseline, variant by variant
reproducible    a rebuild under different circumstances against the first build
"""
