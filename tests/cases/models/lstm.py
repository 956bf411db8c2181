"""Two LSTM layers with given states, nested output."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True)
        self.fc = nn.Linear(16, 4)

    def forward(self, x, h, c):
        y, s = self.lstm(x, (h, c))
        return self.fc(y[:, -1]), s


def get_inputs():
    return [torch.randn(3, 6, 8), torch.randn(2, 3, 16), torch.randn(2, 3, 16)]


def get_init_inputs():
    return []
