"""Depthwise convolution with squeeze and excitation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dw = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.bn = nn.BatchNorm2d(16)
        self.fc1 = nn.Conv2d(16, 4, 1)
        self.fc2 = nn.Conv2d(4, 16, 1)

    def forward(self, x):
        y = F.hardswish(self.bn(self.dw(x)))
        s = F.hardsigmoid(self.fc2(F.relu(self.fc1(y.mean((2, 3), keepdim=True)))))
        return x + y * s


def get_inputs():
    return [torch.randn(2, 16, 14, 14)]


def get_init_inputs():
    return []
