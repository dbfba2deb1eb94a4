"""A training step and an inference step of Liger-Kernel's main operators: a program that knows nothing of aotkern.

    python benchmarks/liger_steps.py --out step.json                 # on a GPU, results as digests and arrays
    python benchmarks/liger_steps.py --paper cuda:90                 # without one: what would be compiled

Needs torch and liger-kernel. Operators: rms_norm, layer_norm, rope, swiglu, cross_entropy, fused linear cross entropy;
bf16, 512 tokens, hidden size 1024, vocabulary 4096. On paper the operators run on CPU tensors, and launches do nothing:
that records specialisations, and computes no results.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

TOKENS, HIDDEN, VOCABULARY, HEADS = 512, 1024, 4096, 8


def inputs(torch: Any, device: str) -> dict[str, Any]:
    """Seeded tensors; those that a training step differentiates ask for gradients."""
    generator = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> Any:
        values = torch.randn(shape, generator=generator, dtype=torch.float32)
        return values.to(torch.bfloat16).to(device).requires_grad_()

    head = HIDDEN // HEADS
    return {
        "x": normal(TOKENS, HIDDEN),
        "weight": normal(HIDDEN),
        "bias": normal(HIDDEN),
        "gate": normal(TOKENS, HIDDEN),
        "head": normal(VOCABULARY, HIDDEN),
        "logits": normal(TOKENS, VOCABULARY),
        "labels": torch.randint(0, VOCABULARY, (TOKENS,), generator=generator).to(device),
        "q": normal(1, HEADS, TOKENS, head),
        "k": normal(1, HEADS, TOKENS, head),
        "cos": normal(1, TOKENS, head).detach(),
        "sin": normal(1, TOKENS, head).detach(),
    }


def operators(given: dict[str, Any]) -> dict[str, Any]:
    """Every operator as a function without arguments."""
    from liger_kernel.transformers import functional as liger

    g = given
    return {
        "rms_norm": lambda: liger.liger_rms_norm(g["x"], g["weight"], 1e-6),
        "layer_norm": lambda: liger.liger_layer_norm(g["x"], g["weight"], g["bias"], 1e-6),
        "swiglu": lambda: liger.liger_swiglu(g["gate"], g["x"]),
        "rope": lambda: liger.liger_rope(g["q"].clone(), g["k"].clone(), g["cos"], g["sin"]),
        "cross_entropy": lambda: liger.liger_cross_entropy(g["logits"].clone(), g["labels"]),
        "fused_linear_cross_entropy": lambda: liger.liger_fused_linear_cross_entropy(g["x"], g["head"], g["labels"]),
    }


def tensors(value: Any) -> list[Any]:
    """The tensors in what an operator returns."""
    parts = value if isinstance(value, tuple) else (value,)
    return [part for part in parts if hasattr(part, "detach")]


def step(torch: Any, device: str, *, train: bool) -> dict[str, Any]:
    """Run all operators; results, and gradients of a training step, by name."""
    given, results = inputs(torch, device), {}
    with contextlib.nullcontext() if train else torch.no_grad():
        for name, operator in operators(given).items():
            found = tensors(operator())
            results.update({f"{name}.{at}": part for at, part in enumerate(found)})
            if train:
                sum(part.float().sum() for part in found).backward()
                for key, value in given.items():
                    if value.grad is not None:
                        results[f"{name}.grad.{key}"], value.grad = value.grad, None
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--paper")
    options = parser.parse_args()
    started = time.perf_counter()
    import torch
    from liger_kernel.transformers import functional  # noqa: F401 - so that its import is not part of a step

    device = "cpu" if options.paper else "cuda"
    with contextlib.ExitStack() as stack:
        if options.paper:
            from aotkern.target import Target
            from aotkern.triton_bridge.paper import paper_device

            target = Target.parse(options.paper)
            torch.version.hip = "on paper" if target.backend.value == "hip" else None  # Liger asks which GPU this is
            stack.enter_context(paper_device(target))
        else:
            torch.cuda.init()
        imported = time.perf_counter()
        found = {"training": step(torch, device, train=True)}
        if not options.paper:
            torch.cuda.synchronize()
        first = time.perf_counter()
        found["inference"] = step(torch, device, train=False)
        if not options.paper:
            torch.cuda.synchronize()
        last = time.perf_counter()
    if options.out:
        flat = {f"{kind}.{name}": value.detach() for kind, rows in found.items() for name, value in rows.items()}
        digests = {name: hashlib.sha256(_bytes(torch, value)).hexdigest() for name, value in flat.items()}
        torch.save({name: value.cpu() for name, value in flat.items()}, options.out.with_suffix(".pt"))
        times = {"import_s": imported - started, "training_s": first - imported, "inference_s": last - first}
        options.out.write_text(json.dumps({"times": times, "digests": digests}, indent=2) + "\n")


def _bytes(torch: Any, value: Any) -> bytes:
    return (
        value.contiguous().cpu().view(torch.uint8).numpy().tobytes()
        if value.dim()
        else value.cpu().item().hex().encode()
    )


if __name__ == "__main__":
    main()
