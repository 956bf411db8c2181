# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Kernels compiled for GPUs that this machine does not have."""

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from services.contracts import TARGETS
from services.sandbox.runner.target import TargetCompileError, compile_launches
from services.sandbox.runner.target.compiling import MAX_CONFIGURATIONS
from services.sandbox.runner.target.driver import _DRIVERS


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def product_body(a, b, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total = tl.dot(tl.load(a + i[:, None] * N + k[None, :]), tl.load(b + k[:, None] * N + j[None, :]), total)
    tl.store(out + i[:, None] * N + j[None, :], total)


product_kernel = triton.jit(product_body)
tuned_kernel = triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 256, 64)], key=["N"])(
    triton.jit(product_body)
)


@triton.jit
def helper(x):
    return tl.erf(x.to(tl.float16))


@triton.jit
def wrong_kernel(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, helper(tl.load(x + i)))


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    for kernel in (double_kernel, product_kernel, tuned_kernel.fn, wrong_kernel):
        kernel.device_caches.clear()
    tuned_kernel.cache.clear()
    _DRIVERS.clear()


def compiled(call: Any, target: str = "h200") -> list[dict[str, Any]]:
    return compile_launches(call, TARGETS[target].model_dump())


def test_a_kernel_is_compiled_once_and_each_launch_counted() -> None:
    x = torch.ones(4096)
    (report,) = compiled(lambda: [double_kernel[(4,)](x, x, 4096, BLOCK=1024) for _ in range(3)])
    assert (report["kernel"], report["launches"], report["grid"]) == ("double_kernel", 3, [4, 1, 1])
    assert report["constants"] == {"BLOCK": "1024"}
    assert 0 < report["registers"] < 64
    assert report["spills"] == report["shared_bytes"] == 0
    assert report["features"] == ["vector loads"]
    assert report["line"] == double_kernel.starting_line_number + 1
    assert torch.equal(x, torch.ones(4096))


@pytest.mark.parametrize(("target", "feature"), [("a100", "mma.sync"), ("h200", "wgmma"), ("b200", "tcgen05")])
def test_products_use_the_tensor_cores_of_each_architecture(target: str, feature: str) -> None:
    a = torch.ones(256, 256, dtype=torch.bfloat16)
    out = torch.empty(256, 256)
    (report,) = compiled(lambda: product_kernel[(4, 4)](a, a, out, 256, BLOCK=64), target)
    assert feature in report["features"]
    assert report["shared_bytes"] > 0


def test_autotuning_keeps_the_largest_configuration_that_fits() -> None:
    a, out = torch.ones(512, 512), torch.empty(512, 512)
    (report,) = compiled(lambda: tuned_kernel[lambda meta: (512 // meta["BLOCK"],) * 2](a, a, out, 512))
    assert report["constants"] == {"BLOCK": "64"}
    assert (report["launches"], report["configurations"]) == (1, 2)
    assert report["grid"] == [8, 8, 1]
    (failed,) = report["failed_configurations"]
    assert failed.startswith("BLOCK=256")
    assert "shared memory" in failed


def test_a_second_run_reports_what_is_cached() -> None:
    a, out = torch.ones(512, 512), torch.empty(512, 512)

    def launch() -> None:
        tuned_kernel[lambda meta: (512 // meta["BLOCK"],) * 2](a, a, out, 512)

    assert compiled(launch) == compiled(launch)


def test_only_so_many_configurations_are_compiled() -> None:
    x = torch.ones(64)
    many = triton.autotune([triton.Config({"BLOCK": 64}, num_stages=n) for n in range(1, 20)], key=["n"])(double_kernel)
    (report,) = compiled(lambda: many[(1,)](x, x, 64))
    assert report["configurations"] == MAX_CONFIGURATIONS
    assert "3 more configurations were not tried" in report["failed_configurations"][0]


def test_too_much_shared_memory_names_the_limit() -> None:
    a, out = torch.ones(512, 512), torch.empty(512, 512)
    with pytest.raises(TargetCompileError, match=r"not enough shared memory: .* needed, 166912 available") as caught:
        compiled(lambda: product_kernel[(2, 2)](a, a, out, 512, BLOCK=256), "a100")
    assert caught.value.kernel == "product_body"


def test_a_front_end_error_names_the_line_of_the_helper() -> None:
    x = torch.ones(64)
    with pytest.raises(TargetCompileError, match="but got fp16") as caught:
        compiled(lambda: wrong_kernel[(1,)](x, BLOCK=64))
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[(caught.value.line or 0) - 1] == "    return tl.erf(x.to(tl.float16))"
    assert caught.value.column == 11
    assert caught.value.kernel == "helper"
    assert "^" in caught.value.place["detail"]


def test_an_error_of_the_host_code_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        compiled(lambda: 1 / 0)
