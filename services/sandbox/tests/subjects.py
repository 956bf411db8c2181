"""Sources that the tests run in a runner, and the calls around them."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from services.sandbox.fence import Buffer
from services.sandbox.runners import Forward, Role, Runner, RunnerKind, Runners, Tree

OP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8]
"""
"""A plain op, as KernelBench has them."""


@contextmanager
def candidate(runners: Runners, body: str, *, wall_s: float = 20.0, role: Role = Role.CANDIDATE) -> Iterator[Runner]:
    """A loaded candidate whose forward(self, x) has this body; the names torch, os, sys, time and socket are there."""
    source = (
        "import os, sys, time, socket\nimport torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        + textwrap.indent(body.strip(), " " * 8)
        + "\ndef get_inputs(): return [torch.ones(4)]\ndef get_init_inputs(): return []\n"
    )
    with runners.spawn(RunnerKind.INTERPRET, role, wall_s=wall_s) as runner:
        runner.load(source, "ModelNew")
        yield runner


def run(runners: Runners, runner: Runner) -> tuple[Forward, list[Buffer]]:
    """One forward on the runner's own inputs, and its outputs."""
    inputs = runner.make_inputs(1)
    buffers = exported(runners, runner, inputs)
    forward = runner.forward(inputs, buffers)
    outputs = [runners.fence.allocate(leaf.spec) for leaf in forward.outputs.leaves]
    runner.collect(outputs)
    return forward, outputs


def exported(runners: Runners, runner: Runner, inputs: Tree) -> list[Buffer]:
    """Buffers that hold the tensors of the last make_inputs."""
    buffers = [runners.fence.allocate(leaf.spec) for leaf in inputs.leaves]
    runner.export_inputs(buffers)
    return buffers
