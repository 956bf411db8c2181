"""Convolution, ReLU and a bias for each channel."""

import torch
import torch.nn as nn

BATCH, IN_CHANNELS, OUT_CHANNELS, HEIGHT, WIDTH, KERNEL_SIZE = 4, 16, 32, 48, 48, 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1) * 0.02)

    def forward(self, image):
        return torch.relu(self.conv(image)) + self.bias


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, KERNEL_SIZE]
