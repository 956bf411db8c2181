import pytest

from services.sandbox.judge.lint import kernel_lines, lint, reaches_around
from services.sandbox.judge.source_check import check_source

GOOD = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
"""


def _codes(source: str) -> list[str]:
    return [finding.code for finding in lint(source)]


def test_an_honest_kernel_has_no_findings() -> None:
    assert lint(GOOD) == []


def test_a_syntax_error_is_reported_with_its_line() -> None:
    (finding,) = lint("x = 1\ndef broken(:\n")
    assert (finding.code, finding.line) == ("syntax_error", 2)


def test_a_source_with_nul_bytes_is_reported() -> None:
    assert _codes("x = 1\0") == ["syntax_error"]


def test_it_names_missing_parts() -> None:
    assert _codes("import torch\n") == ["no_model_new", "no_triton_kernel"]


def test_a_kernel_that_is_never_launched_is_named() -> None:
    source = GOOD.replace("        double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)\n", "")
    assert _codes(source) == ["kernel_never_launched"]


def test_library_calls_in_forward_are_listed_with_their_lines() -> None:
    source = GOOD.replace("return y", "return torch.softmax(y @ y, -1)")
    found = [(finding.code, finding.line) for finding in lint(source)]
    assert found == [("library_call", 14), ("library_call", 14)]


def test_a_try_in_forward_is_pointed_at() -> None:
    source = GOOD.replace(
        "        return y", "        try:\n            return y\n        except ValueError:\n            raise"
    )
    assert _codes(source) == ["try_in_forward"]


def test_an_unmasked_block_access_and_a_bare_dot_are_hints() -> None:
    source = GOOD.replace("tl.load(x + offsets, mask=offsets < n)", "tl.load(x + tl.arange(0, BLOCK))")
    assert _codes(source) == ["unmasked_access"]
    assert _codes(GOOD.replace("* 2", "* tl.dot(x, y)")) == ["dot_precision"]


def test_kernels_are_found_by_line() -> None:
    assert kernel_lines(GOOD) == {"double": 6}
    assert kernel_lines("def (") == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import ctypes", "ctypes"),
        ("from sys import modules\nimport gc", "gc"),
        ("found = sys.modules", "sys.modules"),
        ("with torch._C._DisableTorchDispatch(): pass", "torch._C"),
        ("from torch.utils._python_dispatch import _disable_current_modes", "torch.utils._python_dispatch"),
        ("import torch\ntorch.empty = list", "torch.empty"),
        ("exec('import gc')", "exec"),
    ],
)
def test_a_source_that_reaches_into_its_process_is_named(line: str, said: str) -> None:
    assert said in reaches_around(line)


def test_what_models_do_of_themselves_is_no_reach() -> None:
    source = "import torch, os, math, re\nself.eval()\nself.weight = torch.compile(f)\nre.compile('a')\nx.modules()"
    assert reaches_around(source) == ""


@pytest.mark.parametrize("deep", ["-" * 100_000 + "1", "a" + ".a" * 900, "1+" * 5000 + "1", "not " * 50_000 + "1"])
def test_a_source_nested_too_deep_is_a_hint_and_no_failure(deep: str) -> None:
    assert lint(f"x = {deep}")
    assert kernel_lines(f"x = {deep}") == {}
    check_source(f"x = {deep}")
    reaches_around(f"x = {deep}")
