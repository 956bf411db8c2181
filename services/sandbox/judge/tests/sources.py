"""Ops and candidates for the ladder's own tests."""

MATMUL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.scale = scale

    def forward(self, x):
        return x @ self.weight * self.scale


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [0.5]
"""

MATMUL_CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_matmul_kernel(x, weight, y, scale, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    places = rows[:, None] * SIZE + rows[None, :]
    product = tl.dot(tl.load(x + places), tl.load(weight + places), input_precision="ieee")
    tl.store(y + places, product * scale)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.scale = scale

    def forward(self, x):
        y = torch.empty_like(x)
        scaled_matmul_kernel[(1,)](x, self.weight, y, self.scale, SIZE=64)
        return y
"""

PLAIN_OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(32, 32)]


def get_init_inputs():
    return []
"""
