"""Group normalisation and SiLU, as in the residual blocks of a diffusion model."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, GROUPS, CHANNELS, HEIGHT, WIDTH = 4, 16, 128, 32, 32


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, image):
        return F.silu(self.norm(image))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [GROUPS, CHANNELS]
