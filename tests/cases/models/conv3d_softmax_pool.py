"""3-D convolution, softmax over channels, two poolings."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 16, 3)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(self.pool(torch.softmax(self.conv(x), dim=1)))


def get_inputs():
    return [torch.randn(2, 3, 14, 14, 14)]


def get_init_inputs():
    return []
