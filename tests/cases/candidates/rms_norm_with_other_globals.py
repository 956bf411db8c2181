"""RMS norm. The globals have the names of the op's own and other values: it runs in a process of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BATCH, DIM = 1, 2


def get_inputs():
    return [torch.zeros(BATCH, 1, DIM)]


@triton.jit
def rms_norm_kernel(x, weight, y, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    places = rows[:, None] * columns + offsets[None, :]
    values = tl.load(x + places, mask=mask[None, :], other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, axis=1) / columns + eps)
    weights = tl.load(weight + offsets, mask=mask, other=0.0)
    tl.store(y + places, values * scale[:, None] * weights[None, :], mask=mask[None, :])


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        block = triton.next_power_of_2(columns)
        rms_norm_kernel[(rows // 64,)](x, self.weight, y, columns, self.eps, ROWS=64, BLOCK=block)
        return y
