# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Control flow, reductions and scans, shapes, decorators and errors."""

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from services.sandbox.runner.interpreter import (
    DeviceAssertion,
    NotInterpretable,
    UnsupportedLanguage,
    launch,
    recording,
)

WIDTH = tl.constexpr(4)


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def larger_with_index(value, index, other, other_index):
    take = (value > other) | ((value == other) & (index < other_index))
    return tl.where(take, value, other), tl.where(take, index, other_index)


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def reduce_kernel(x, product, value, index, BLOCK: tl.constexpr, AXIS: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    data = tl.load(x + tl.program_id(0) * BLOCK * BLOCK + i * BLOCK + j)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(product + row, tl.reduce(data, AXIS, multiply))
    place = tl.broadcast_to(i if AXIS == 0 else j, (BLOCK, BLOCK))
    best, where = tl.reduce((data, place), AXIS, larger_with_index)
    tl.store(value + row, best)
    tl.store(index + row, where)


@pytest.mark.parametrize("axis", [0, 1])
def test_custom_reductions(axis: int) -> None:
    x = 1 + 0.1 * torch.randn(5, 8, 8)
    product, value = torch.empty(5, 8), torch.empty(5, 8)
    index = torch.empty(5, 8, dtype=torch.int32)
    reduce_kernel[(5,)](x, product, value, index, BLOCK=8, AXIS=axis)
    torch.testing.assert_close(product, x.prod(axis + 1))
    assert torch.equal(value, x.amax(axis + 1))
    assert torch.equal(index.long(), x.argmax(axis + 1))


@triton.jit
def scan_kernel(x, total, decayed, backwards, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    data = tl.load(x + i)
    tl.store(total + i, tl.cumsum(data, 0))
    factor = tl.full((BLOCK,), 0.5, tl.float32)
    tl.store(decayed + i, tl.associative_scan((factor, data), 0, affine)[1])
    tl.store(backwards + i, tl.associative_scan(data, 0, multiply, reverse=True))


def test_scans() -> None:
    x = 1 + 0.1 * torch.randn(3, 32)
    total, decayed, backwards = (torch.empty_like(x) for _ in range(3))
    scan_kernel[(3,)](x, total, decayed, backwards, BLOCK=32)
    expected = torch.zeros(3)
    for column in range(32):
        expected = expected * 0.5 + x[:, column]
        torch.testing.assert_close(decayed[:, column], expected)
    torch.testing.assert_close(total, x.cumsum(1))
    torch.testing.assert_close(backwards, x.flip(1).cumprod(1).flip(1))


@triton.jit
def extrema_kernel(x, out, indices, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    data = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + row * 2, tl.max(data, 0))
    tl.store(out + row * 2 + 1, tl.min(data, 0))
    tl.store(indices + row * 2, tl.argmax(data, 0))
    tl.store(indices + row * 2 + 1, tl.argmin(data, 0))


def test_extrema_ignore_nan_as_the_hardware_does() -> None:
    x = torch.randn(4, 64)
    x[1, 3] = float("nan")
    out, indices = torch.empty(4, 2), torch.empty(4, 2, dtype=torch.int32)
    extrema_kernel[(4,)](x, out, indices, BLOCK=64)
    plain = [0, 2, 3]
    assert torch.equal(out[plain], torch.stack([x.amax(1), x.amin(1)], 1)[plain])
    assert torch.equal(indices[plain].long(), torch.stack([x.argmax(1), x.argmin(1)], 1)[plain])
    assert out[1].tolist() == [float(x[1][~x[1].isnan()].max()), float(x[1][~x[1].isnan()].min())]


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sort(tl.load(x + i)))


def test_sort() -> None:
    x = torch.randn(6, 32)
    out = torch.empty_like(x)
    sort_kernel[(6,)](x, out, BLOCK=32)
    assert torch.equal(out, x.sort(1).values)


@triton.jit
def shape_kernel(x, out, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    data = tl.load(x + program * BLOCK * BLOCK + i * BLOCK + j) + program
    pair = tl.join(data, data.T)
    left, right = tl.split(pair)
    flat = tl.reshape(tl.permute(left, (1, 0)), (BLOCK * BLOCK,)) + tl.ravel(tl.trans(right))
    tl.store(out + program * BLOCK * BLOCK + tl.arange(0, BLOCK * BLOCK), tl.flip(flat, 0))


def test_shapes() -> None:
    x = torch.randn(3, 8, 8)
    out = torch.empty(3, 64)
    shape_kernel[(3,)](x, out, BLOCK=8)
    shifted = x + torch.arange(3)[:, None, None]
    assert torch.equal(out, (shifted.mT + shifted).reshape(3, 64).flip(1))


@triton.jit
def gather_kernel(x, index, out, counts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * BLOCK
    chosen = tl.load(index + row + i)
    tl.store(out + row + i, tl.gather(tl.load(x + row + i), chosen, 0))
    tl.store(counts + row + i, tl.histogram(chosen, BLOCK))


def test_gather_and_histogram() -> None:
    x, index = torch.randn(4, 16), torch.randint(0, 16, (4, 16), dtype=torch.int32)
    out, counts = torch.empty_like(x), torch.empty(4, 16, dtype=torch.int32)
    gather_kernel[(4,)](x, index, out, counts, BLOCK=16)
    assert torch.equal(out, x.gather(1, index.long()))
    assert torch.equal(counts.long(), torch.stack([torch.bincount(row, minlength=16) for row in index]))


@triton.jit
def branching_kernel(out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, program + 1):
        if step % 2 == 0 and not program == 3:  # noqa: SIM201 (`not` is what is tested)
            total += step.to(tl.float32)  # type: ignore[attr-defined]
        elif program > 5 or step == 1:
            total -= 1.0
    k = program
    while k > 4:
        total += 100.0
        k -= 2
    tl.store(out + program * BLOCK + tl.arange(0, BLOCK), total if program != 7 else total * 2)


def branching_reference(program: int) -> float:
    total = 0.0
    for step in range(program + 1):
        if step % 2 == 0 and program != 3:
            total += step
        elif program > 5 or step == 1:
            total -= 1.0
    k = program
    while k > 4:
        total += 100.0
        k -= 2
    return total if program != 7 else total * 2


def test_programs_may_take_different_ways() -> None:
    out = torch.full((40, 16), -1.0)
    branching_kernel[(40,)](out, 40, BLOCK=16)
    expected = torch.tensor([branching_reference(program) for program in range(40)])
    assert torch.equal(out, expected[:, None].expand(40, 16))


@triton.jit
def in_place_kernel(x, out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) + 1)
    tl.atomic_add(out, 1)
    if program % 3 == 0:
        tl.store(x + i, tl.load(x + i) * 10)


def test_programs_that_part_after_a_write_write_once() -> None:
    x, count = torch.zeros(30, 16), torch.zeros(1, dtype=torch.int32)
    with recording(count=True) as launches:
        in_place_kernel[(30,)](x, count, 30, BLOCK=16)
    expected = torch.where(torch.arange(30) % 3 == 0, 10.0, 1.0)
    assert torch.equal(x, expected[:, None].expand(30, 16))
    assert count.item() == 30
    assert launches[0]["bytes_requested"] == 30 * 16 * 4 * 2 + 10 * 16 * 4 * 2 + 30 * 4 * 2


@triton.jit
def persistent_kernel(x, out, tiles, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) * 2)


def test_persistent_kernels() -> None:
    x = torch.randn(37, 16)
    out = torch.empty_like(x)
    persistent_kernel[(8,)](x, out, 37, PROGRAMS=8, BLOCK=16)
    assert torch.equal(out, x * 2)


@triton.jit
def relay_kernel(x, flags, total):
    program = tl.program_id(0)
    before = 0.0
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0) == 0:
            pass
        before = tl.load(total + program - 1)
    tl.store(total + program, before + tl.load(x + program))
    tl.atomic_xchg(flags + program, 1)


def test_a_program_may_wait_for_the_one_before_it() -> None:
    x = torch.randint(-9, 9, (40,)).float()
    total, flags = torch.zeros(40), torch.zeros(40, dtype=torch.int32)
    relay_kernel[(40,)](x, flags, total)
    assert torch.equal(total, x.cumsum(0))


@triton.jit
def assembly_kernel(x):
    tl.store(x, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], tl.int32, True, 1))


def test_what_only_a_gpu_can_run_is_named() -> None:
    with pytest.raises(NotInterpretable, match="inline_asm"):
        assembly_kernel[(1,)](torch.zeros(1, dtype=torch.int32))


@triton.jit
def three_axes_kernel(out, X: tl.constexpr, Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (z * Y + y) * X + x, x + 10 * y + 100 * z + 1000 * tl.num_programs(2))


def test_grids_of_three_dimensions() -> None:
    out = torch.empty(3, 4, 5, dtype=torch.int32)
    three_axes_kernel[(5, 4, 3)](out, X=5, Y=4)
    z, y, x = torch.meshgrid(torch.arange(3), torch.arange(4), torch.arange(5), indexing="ij")
    assert torch.equal(out.long(), x + 10 * y + 100 * z + 3000)


@pytest.mark.parametrize("grid", [(1, 70000), (-1,), (2**31,)])
def test_a_grid_that_no_gpu_takes_is_refused(grid: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="invalid grid"):
        three_axes_kernel[grid](torch.empty(1, dtype=torch.int32), X=5, Y=4)


@triton.jit
def scalar_kernel(out, flag, small, large, fraction, nothing, numbers, WIDTH_: tl.constexpr):
    half: tl.constexpr = WIDTH_ // 2
    i = tl.arange(0, half)
    tl.static_assert(half == 2, "half")
    if nothing is None:
        tl.store(out + i, tl.where(flag, small + large + fraction + numbers[0], 0.0))
    tl.store(out + 2, max(small, 9) + min(small, WIDTH) + (small > 2 and flag))


def test_scalars_constants_and_builtins() -> None:
    out = torch.zeros(3, dtype=torch.float64)
    scalar_kernel[(1,)](out, True, 3, 2**40, 0.5, None, (4, 5), WIDTH_=4)
    assert out.tolist() == [float(torch.tensor(2.0**40) + 7.5)] * 2 + [9 + 3 + 1]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": size}, num_warps=4, pre_hook=lambda args: args["out"].zero_()) for size in (32, 128, 64)
    ],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + (1.0 if EVEN else 0.0), mask=mask)


def test_autotuning_takes_the_fewest_programs() -> None:
    x, out = torch.randn(256), torch.empty(256)
    with recording() as launches:
        tuned_kernel[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](x, out, 256)
    assert launches[0]["grid"] == [2, 1, 1]
    assert launches[0]["constants"] == {"BLOCK": "128", "EVEN": "True"}
    assert torch.equal(out, x + 1)


@triton.jit
def asserting_kernel(x, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + i) >= 0, "negative")


def test_device_asserts_fire_and_name_the_program() -> None:
    x = torch.zeros(64)
    asserting_kernel[(4,)](x, BLOCK=16)
    x[40] = -1
    with pytest.raises(DeviceAssertion, match=r"negative \(program \(2, 0, 0\)\)"):
        asserting_kernel[(4,)](x, BLOCK=16)


@triton.jit
def printing_kernel(x):
    tl.device_print("value", tl.load(x + tl.program_id(0)))


def test_device_print_prints_each_program(capsys: pytest.CaptureFixture[str]) -> None:
    printing_kernel[(3,)](torch.arange(3))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["0", "1", "2"]
    assert lines[2].startswith("(2, 0, 0) value:")


@triton.jit
def block_condition_kernel(x, BLOCK: tl.constexpr):
    if tl.load(x + tl.arange(0, BLOCK)) > 0:
        tl.store(x, 1.0)


@triton.jit
def chained_kernel(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, mask=0 <= i < 4)  # fmt: skip


def test_constructs_that_triton_refuses_are_refused() -> None:
    with pytest.raises(UnsupportedLanguage, match=r"use tl\.where"):
        block_condition_kernel[(1,)](torch.zeros(16), BLOCK=16)
    with pytest.raises(UnsupportedLanguage, match="chained comparisons"):
        chained_kernel[(1,)](torch.zeros(16), BLOCK=16)


def test_complex_arguments_are_named() -> None:
    with pytest.raises(UnsupportedLanguage, match=r"argument .x. of printing_kernel has dtype torch\.complex64"):
        printing_kernel[(1,)](torch.zeros(1, dtype=torch.complex64))


def test_a_kernel_is_no_function_of_the_host() -> None:
    with pytest.raises(RuntimeError, match="launch it with a grid"):
        multiply(torch.ones(1), torch.ones(1))


@triton.jit
def failing_kernel(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i.no_such_method())


def test_an_error_in_a_kernel_has_its_own_type_and_line() -> None:
    with pytest.raises(AttributeError) as caught:
        failing_kernel[(4,)](torch.zeros(16), BLOCK=16)
    frames: list[Any] = [entry for entry in caught.traceback if str(entry.path) == __file__]
    assert "no_such_method" in str(frames[-1].statement)


@triton.jit
def causal_kernel(q, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    i = tl.arange(0, BLOCK)
    for start in range(0, (row + 1) * BLOCK, BLOCK):
        total += tl.load(q + tl.program_id(1) * BLOCK * 4 + start + i)
    tl.store(out + (tl.program_id(1) * 4 + row) * BLOCK + i, total)


def test_loops_of_different_length_run_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(50, 4, 16)
    out = torch.empty_like(q)
    attempts = []
    original = launch._Launch._attempt

    def attempt(self: Any, programs: Any) -> None:
        attempts.append(len(programs))
        original(self, programs)

    monkeypatch.setattr(launch._Launch, "_attempt", attempt)
    causal_kernel[(4, 50)](q, out, BLOCK=16)
    torch.testing.assert_close(out, q.cumsum(1))
    assert len(attempts) <= 12 or launch.LANES == 1
