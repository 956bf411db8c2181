"""Leaves the product to PyTorch and fuses nothing but the exact GELU, computed in float32."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask).to(tl.float32)
    result = 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    tl.store(y + offsets, result.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 512, dtype=torch.bfloat16)

    def forward(self, x):
        x = self.lin(x)
        y = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y
