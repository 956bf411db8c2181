"""A selective scan unrolled over time."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.A = nn.Parameter(torch.randn(4, 8))

    def forward(self, x, dt):
        dt = F.softplus(dt)
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A))
        h = torch.zeros(x.shape[0], 4, 8, device=x.device)
        ys = []
        for t in range(x.shape[1]):
            h = h * decay[:, t] + (dt[:, t] * x[:, t]).unsqueeze(-1)
            ys.append(h.sum(-1))
        return torch.stack(ys, 1) * F.silu(x)


def get_inputs():
    return [torch.randn(2, 8, 4), torch.randn(2, 8, 4)]


def get_init_inputs():
    return []
