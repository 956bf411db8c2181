"""SwiGLU: the gated activation between the two projections of a Llama-style feed-forward layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, FEATURES = 128, 2048


class Model(nn.Module):
    def forward(self, gate_and_up):
        gate, up = gate_and_up.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(TOKENS, 2 * FEATURES)]


def get_init_inputs():
    return []
