"""Cross-entropy loss of next-token logits over a vocabulary."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, VOCABULARY = 128, 8192


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


def get_inputs():
    return [torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
