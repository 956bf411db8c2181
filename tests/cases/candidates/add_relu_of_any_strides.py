"""relu(x + bias) for inputs of any strides, expanded ones included."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_relu_kernel(x, bias, y, n, columns, x_row, x_column, bias_row, bias_column, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    row, column = offsets // columns, offsets % columns
    left = tl.load(x + row * x_row + column * x_column, mask=mask)
    right = tl.load(bias + row * bias_row + column * bias_column, mask=mask)
    tl.store(y + offsets, tl.maximum(left + right, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, bias):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(y.numel(), 4096),)
        add_relu_kernel[grid](x, bias, y, y.numel(), x.shape[1], *x.stride(), *bias.stride(), BLOCK=4096)
        return y
