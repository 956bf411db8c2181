"""Linear layer with an epilogue: scale, GELU and a residual connection."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, IN_FEATURES, OUT_FEATURES = 256, 512, 1024


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.layer_scale = nn.Parameter(torch.full((out_features,), 0.1))

    def forward(self, x, residual):
        return residual + self.layer_scale * F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(TOKENS, IN_FEATURES), torch.randn(TOKENS, OUT_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
