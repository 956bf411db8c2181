"""A gated feed-forward layer in half precision after RMS norm."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 128, bias=False, dtype=torch.float16)
        self.gate = nn.Linear(64, 128, bias=False, dtype=torch.float16)
        self.down = nn.Linear(128, 64, bias=False, dtype=torch.float16)
        self.norm = nn.Parameter(torch.ones(64, dtype=torch.float16))

    def forward(self, x):
        v = x.float().pow(2).mean(-1, keepdim=True)
        h = (x.float() * torch.rsqrt(v + 1e-6)).half() * self.norm
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def get_inputs():
    return [torch.randn(32, 64, dtype=torch.float16)]


def get_init_inputs():
    return []
