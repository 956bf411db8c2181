"""An op's source is as little trusted as a candidate's: each attack is refused in words, and the next op is clean."""

from collections.abc import Iterator

import pytest

from services.contracts import Finding, OpSpec, ScreenRequest, ScreenStatus
from services.sandbox.judge.screening import screen
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings

SETTINGS = SandboxSettings(call_s=8.0, reference_s=6.0)

OP = """
import os, signal, sys, time
import torch
import torch.nn as nn

{before}

class Model(nn.Module):
    def forward(self, x):
        {forward}


def get_inputs():
    {inputs}


def get_init_inputs():
    return []
"""


def op(
    before: str = "", forward: str = "return torch.relu(x) * 2", inputs: str = "return [torch.randn(64, 100)]"
) -> str:
    """The whole file."""
    return OP.format(before=before, forward=forward, inputs=inputs)


def claim(spec: str) -> str:
    """Rewrites what the runner says of every tensor."""
    return f"""
trees = next(m for name, m in sys.modules.items() if name.endswith("runner.trees"))
real = trees.describe
trees.describe = lambda t: {{**real(t), "spec": {{**real(t)["spec"], {spec}}}}}
"""


NESTED = """
trees = next(m for name, m in sys.modules.items() if name.endswith("runner.trees"))
nested = {"value": 1}
for _ in range(240):
    nested = {"list": [nested]}
trees.encode = lambda *args: nested
"""

ATTACKS = {
    "claims_terabytes_of_span": (op(claim('"shape": [2], "stride": [1 << 40]')), "needs_gpu_worker"),
    "claims_a_gigabyte_of_span": (op(claim('"shape": [2], "stride": [1 << 28]')), "needs_gpu_worker"),
    "spans_much_with_few_elements": (
        op(inputs="return [torch.empty_strided((8, 8), (1 << 24, 1)).normal_()]"),
        "needs_gpu_worker",
    ),
    "claims_a_dtype_without_values": (op(claim('"dtype": "quint8"')), "get_inputs_failed"),
    "nests_without_end": (op(NESTED), "load_failed"),
    "writes_a_gigabyte": (op(forward="return x.view(-1, 1) * torch.ones(100000)"), "output_too_large"),
    "sleeps_in_its_inputs": (op(inputs="time.sleep(1000)"), "get_inputs_timeout"),
    "kills_everything": (op(forward="os.kill(-1, signal.SIGKILL); return x"), "forward_failed"),
    "ends_while_loading": (op("os._exit(0)"), "load_failed"),
    "aborts": (op(forward="os.abort()"), "forward_failed"),
}


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    with Runners(SETTINGS) as opened:
        yield opened


def _screened(source: str, runners: Runners) -> tuple[ScreenStatus, list[Finding]]:
    report = screen(ScreenRequest(op=OpSpec(op_id="1", name="op", source=source)), runners, settings=SETTINGS)
    return report.status, report.findings


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_of_an_op_is_its_own_fault(name: str, runners: Runners) -> None:
    source, code = ATTACKS[name]
    status, findings = _screened(source, runners)
    assert status is ScreenStatus.REFUSED, findings
    assert code in {finding.code for finding in findings}
    assert _screened(op(), runners)[0] is ScreenStatus.ACCEPTED
