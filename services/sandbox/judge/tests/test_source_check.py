import pytest

from services.sandbox.judge.source_check import check_source

OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""


def test_a_plain_op_has_no_findings() -> None:
    assert check_source(OP) == []


@pytest.mark.parametrize(
    ("source", "code", "line"),
    [
        (OP + "def broken(:\n", "syntax_error", 17),
        (OP.replace("class Model", "class Other"), "missing_model", None),
        (OP.replace("get_inputs", "get_them"), "missing_get_inputs", None),
        (OP.replace("get_init_inputs", "get_them"), "missing_get_init_inputs", None),
        (OP + "x = 1\0\n", "nul_bytes", 17),
        (OP + "#" * 1_000_001, "source_too_large", None),
        (OP.replace("torch.randn(4)", "torch.randn(4).cuda()"), "cuda_device", 12),
        (OP.replace("return x\n", "return x + torch.ones(4, device='cuda:0')\n"), "cuda_device", 8),
        ("(" * 5000, "syntax_error", 1),
    ],
)
def test_each_problem_is_one_blocker_with_its_line(source: str, code: str, line: int | None) -> None:
    (finding,) = check_source(source)
    assert (finding.code, finding.line) == (code, line)
    assert finding.mend


def test_a_guarded_device_is_fine() -> None:
    guarded = OP.replace("return x\n", "return x.to('cuda' if torch.cuda.is_available() else 'cpu')\n")
    assert check_source(guarded) == []
