"""Names that a kernel uses itself: tl, device, out, mask, row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, tl, triton=3):
        super().__init__()
        self.mask = nn.Parameter(torch.ones(8))
        self.row = nn.Parameter(torch.ones(8))
        self.offsets = nn.Parameter(torch.ones(8))

    def forward(self, tl, device, out):
        return (tl + self.mask) * self.row + self.offsets * device + out


def get_inputs():
    return [torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)]


def get_init_inputs():
    return [1]
