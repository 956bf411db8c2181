"""Deliberately wrong answers. A checker that lets one pass on an op cannot tell a cheat from a kernel there."""

from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor

from services.sandbox.judge.layout import core_view


class Mutant(StrEnum):
    """What a lazy or broken candidate would answer."""

    ZEROS = "zeros"
    IDENTITY = "identity of an input"
    CONSTANT = "constant"
    HALF_THE_WORK = "half the work"
    NAN = "nan"
    LOW_PRECISION = "bfloat16 cast"


def zeros(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Zero everywhere."""
    return [torch.zeros_like(output) for output in outputs]


def constant(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Each output's own mean everywhere: right on average and nowhere else."""
    return [torch.full_like(output, _mean(output)) for output in outputs]


def not_a_number(outputs: Sequence[Tensor]) -> list[Tensor] | None:
    """NaN everywhere; None where no output can hold one."""
    if not any(output.is_floating_point() for output in outputs):
        return None
    return [torch.full_like(output, float("nan")) if output.is_floating_point() else output for output in outputs]


def low_precision(outputs: Sequence[Tensor]) -> list[Tensor] | None:
    """The right answer rounded to bfloat16; None where no output is wider."""
    if not any(output.dtype in (torch.float32, torch.float64) for output in outputs):
        return None
    return [output.bfloat16().to(output.dtype) if output.is_floating_point() else output for output in outputs]


def identity(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """Each input handed back as the one output, where shape and dtype allow it."""
    if len(outputs) != 1:
        return []
    (output,) = outputs
    return [[leaf] for leaf in inputs if leaf.shape == output.shape and leaf.dtype == output.dtype]


def halve_inputs(leaves: Sequence[Tensor]) -> bool:
    """Overwrite in place the second half of every leaf's rows with the first: what half the work has seen.

    Row-wise ops then repeat the first half of their rows and reductions average over half of the data. Rows run along
    the first dimension that is longer than one. Returns whether anything changed.
    """
    changed = False
    for leaf in leaves:
        rows = core_view(leaf)
        dim = next((dim for dim in range(rows.ndim) if rows.shape[dim] > 1), None)
        if dim is None:
            continue
        half = rows.shape[dim] // 2
        rest = rows.shape[dim] - half
        source = rows.narrow(dim, 0, half)
        if rest > half:
            source = torch.cat([source, source.narrow(dim, 0, 1)], dim=dim)
        target = rows.narrow(dim, half, rest)
        changed |= not torch.equal(target, source)
        target.copy_(source.clone())
    return changed


def _mean(output: Tensor) -> float:
    finite = output[torch.isfinite(output)].double()
    return float(finite.mean()) if finite.numel() else 0.0
