"""Rotary position embedding of queries and keys, in the half-rotated form that Llama uses."""

import torch
import torch.nn as nn

BATCH, HEADS, POSITIONS, HEAD_DIM = 1, 8, 128, 128


class Model(nn.Module):
    def __init__(self, head_dim, positions, base=10000.0):
        super().__init__()
        frequency = base ** (-torch.arange(0, head_dim, 2) / head_dim)
        angle = torch.outer(torch.arange(positions), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    @staticmethod
    def rotate_half(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)

    def forward(self, query, key):
        rotated_query = query * self.cos + self.rotate_half(query) * self.sin
        rotated_key = key * self.cos + self.rotate_half(key) * self.sin
        return rotated_query, rotated_key


def get_inputs():
    shape = (BATCH, HEADS, POSITIONS, HEAD_DIM)
    return [torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [HEAD_DIM, POSITIONS]
