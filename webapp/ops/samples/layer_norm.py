"""Layer normalisation of a transformer's hidden states."""

import torch
import torch.nn as nn

TOKENS, HIDDEN = 512, 768


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, hidden_states):
        return self.norm(hidden_states)


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
