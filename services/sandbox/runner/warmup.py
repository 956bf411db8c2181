"""A kernel that a zygote runs or compiles once: what Triton loads for its first kernel then serves each child."""

from typing import Any

import torch
import triton
import triton.language as tl

from . import counting, interpreter
from .fill import FillUninitialized
from .target import compile_launches


@triton.jit  # type: ignore[untyped-decorator]
def add_one_kernel(x_ptr, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """x += 1."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def interpret() -> None:
    """In the interpreter, counted, as a forward runs."""
    with interpreter.recording(count=True), FillUninitialized(0.0), counting.AtenCounter():
        _launch()


def compile_for(target: dict[str, Any]) -> None:
    """For a GPU, which has the fields of `contracts.GpuSpec`."""
    compile_launches(_launch, target)


def _launch() -> None:
    x = torch.empty(16)
    add_one_kernel[(1,)](x, 16, BLOCK=16)
