# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Values: every number format and the library of functions, against torch."""

import inspect
import re
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

from services.sandbox.runner.interpreter.libdevice import _function

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask) * 2.0, mask=mask)


@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_rounds_in_the_dtype(dtype: torch.dtype) -> None:
    x, y = torch.randn(1000, dtype=dtype), torch.randn(1000, dtype=dtype)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(1000, 128),)](x, y, out, 1000, BLOCK=128)
    assert torch.equal(out, x + y * 2.0)


@triton.jit
def row_kernel(x, out, columns, BLOCK: tl.constexpr, WHAT: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    if WHAT == "sum":
        value = tl.sum(tl.load(x + row * columns + i, mask=mask, other=0.0), axis=0)
        tl.store(out + row, value)
    elif WHAT == "max":
        value = tl.max(tl.load(x + row * columns + i, mask=mask, other=-float("inf")), axis=0)
        tl.store(out + row, value)
    else:
        value = tl.load(x + row * columns + i, mask=mask, other=-float("inf")).to(tl.float32)
        e = tl.exp(value - tl.max(value, 0))
        tl.store(out + row * columns + i, e / tl.sum(e, 0), mask=mask)


@pytest.mark.parametrize("dtype", FLOATS)
def test_row_reductions(dtype: torch.dtype) -> None:
    x = torch.randn(37, 100, dtype=dtype)
    total, largest, soft = torch.empty(37, dtype=dtype), torch.empty(37, dtype=dtype), torch.empty_like(x)
    row_kernel[(37,)](x, total, 100, BLOCK=128, WHAT="sum")
    row_kernel[(37,)](x, largest, 100, BLOCK=128, WHAT="max")
    row_kernel[(37,)](x, soft, 100, BLOCK=128, WHAT="softmax")
    roundoff = torch.finfo(dtype).eps
    torch.testing.assert_close(total.float(), x.float().sum(1), atol=100 * roundoff, rtol=0)
    assert torch.equal(largest, x.amax(1))
    torch.testing.assert_close(soft, x.softmax(1), atol=roundoff, rtol=2 * roundoff)


@triton.jit
def dot_kernel(a, b, out, K, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + i
        left = tl.load(a + i[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * BLOCK + i[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(out + i[:, None] * BLOCK + i[None, :], total)


def product(a: Tensor, b: Tensor, precision: str | None) -> Tensor:
    out = torch.empty(32, 32)
    dot_kernel[(1,)](a, b, out, a.shape[1], BLOCK=32, PRECISION=precision)
    return out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_products_accumulate_in_float32(dtype: torch.dtype) -> None:
    a, b = torch.randn(32, 256, dtype=dtype), torch.randn(256, 32, dtype=dtype)
    torch.testing.assert_close(product(a, b, None), a.float() @ b.float(), atol=1e-4, rtol=1e-5)


def test_a_float32_product_is_tf32_unless_asked_otherwise() -> None:
    a, b = torch.randn(32, 256), torch.randn(256, 32)
    golden = a.double() @ b.double()
    error = {p: float((product(a, b, p) - golden).abs().max()) for p in (None, "tf32", "tf32x3", "ieee")}
    assert error[None] == error["tf32"]
    assert error["tf32"] > 1e-2
    assert error["ieee"] < 1e-4
    assert error["tf32x3"] < 1e-4


@triton.jit
def cast_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def test_floats_become_integers_as_on_the_gpu() -> None:
    x = torch.tensor([1.9, -1.9, 3e9, -3e9, float("nan"), float("inf"), 0.0, 2147483520.0])
    out = torch.empty(8, dtype=torch.int32)
    cast_kernel[(1,)](x, out, BLOCK=8)
    assert out.tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, 0, 2147483520]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn]
)
def test_conversions_round_to_nearest_even(dtype: torch.dtype) -> None:
    x = torch.randn(256) * 4
    x[:3] = torch.tensor([float("nan"), 0.0, -0.0])
    out = torch.empty(256, dtype=dtype)
    cast_kernel[(1,)](x, out, BLOCK=256)
    assert torch.equal(torch.nan_to_num(out.float(), nan=7), torch.nan_to_num(x.to(dtype).float(), nan=7))


@triton.jit
def truncating_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(tl.bfloat16, fp_downcast_rounding="rtz"))


def test_rounding_toward_zero() -> None:
    x = torch.randn(256)
    out = torch.empty(256, dtype=torch.bfloat16)
    truncating_kernel[(1,)](x, out, BLOCK=256)
    assert torch.equal(out.float(), (x.view(torch.int32) & -65536).view(torch.float32))


@triton.jit
def math_kernel(x, out, n, NAME: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    if NAME == "tl.erf":
        r = tl.erf(v)
    elif NAME == "tl.exp2":
        r = tl.exp2(v)
    elif NAME == "tl.sigmoid":
        r = tl.sigmoid(v)
    elif NAME == "tl.rsqrt":
        r = tl.rsqrt(tl.abs(v) + 1.0)
    elif NAME == "tl.fma":
        r = tl.fma(v, v, v)
    elif NAME == "tanh":
        r = libdevice.tanh(v)
    elif NAME == "erf":
        r = libdevice.erf(v)
    elif NAME == "log1p":
        r = libdevice.log1p(tl.abs(v))
    elif NAME == "expm1":
        r = libdevice.expm1(v)
    elif NAME == "pow":
        r = libdevice.pow(tl.abs(v), tl.abs(v))
    elif NAME == "nearbyint":
        r = libdevice.nearbyint(v)
    else:
        r = libdevice.erfinv(libdevice.tanh(v))
    tl.store(out + i, r)


REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "tl.erf": torch.erf,
    "tl.exp2": torch.exp2,
    "tl.sigmoid": torch.sigmoid,
    "tl.rsqrt": lambda v: (v.abs() + 1).rsqrt(),
    "tl.fma": lambda v: v * v + v,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "log1p": lambda v: v.abs().log1p(),
    "expm1": torch.expm1,
    "pow": lambda v: v.abs() ** v.abs(),
    "nearbyint": torch.round,
    "erfinv": lambda v: v.tanh().erfinv(),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(128, dtype=dtype)
    out = torch.empty_like(x)
    math_kernel[(1,)](x, out, 128, NAME=name, BLOCK=128)
    torch.testing.assert_close(out, REFERENCES[name](x), atol=1e-5 if dtype == torch.float32 else 1e-13, rtol=1e-5)


@triton.jit
def libdevice_tanh_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.tanh(tl.load(x + i)))


def test_libdevice_has_no_half_functions() -> None:
    x = torch.randn(128, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"libdevice\.tanh has no version for arguments of type"):
        libdevice_tanh_kernel[(1,)](x, x, BLOCK=128)


def test_every_libdevice_symbol_has_a_function() -> None:
    symbols = re.findall(r'"(__nv_\w+)"', inspect.getsource(cuda_libdevice))
    assert len(symbols) > 200
    for symbol in symbols:
        assert callable(_function(symbol))


@triton.jit
def integer_kernel(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + BLOCK + i, a % b)
    tl.store(out + 2 * BLOCK + i, a >> 1)
    tl.store(out + 3 * BLOCK + i, a // 7)
    tl.store(out + 4 * BLOCK + i, (a * 65537) ^ b)


def test_integers_divide_toward_zero_and_wrap() -> None:
    x = torch.randint(-1000, 1000, (64,), dtype=torch.int32)
    y = torch.randint(1, 9, (64,), dtype=torch.int32) * torch.tensor([1, -1], dtype=torch.int32).repeat(32)
    out = torch.empty(5, 64, dtype=torch.int32)
    integer_kernel[(1,)](x, y, out, BLOCK=64)
    quotient = torch.div(x, y, rounding_mode="trunc")
    assert torch.equal(out[0], quotient)
    assert torch.equal(out[1], x - quotient * y)
    assert torch.equal(out[2], x >> 1)
    assert torch.equal(out[3], torch.div(x, 7, rounding_mode="trunc"))
    assert torch.equal(out[4], (x * 65537) ^ y)


@triton.jit
def random_kernel(out, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(seed, i))


def test_random_numbers_depend_on_the_offset_alone() -> None:
    small, large = torch.empty(1024), torch.empty(1024)
    random_kernel[(16,)](small, 7, BLOCK=64)
    random_kernel[(1,)](large, 7, BLOCK=1024)
    assert torch.equal(small, large)
    assert 0.4 < float(small.mean()) < 0.6
