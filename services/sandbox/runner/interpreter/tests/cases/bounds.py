# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Memory: exact bounds of every argument, atomics, pointer tables, block pointers and descriptors, and the counts."""

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from services.contracts import target_spec
from services.sandbox.runner.cuda_on_host import CudaOnHost
from services.sandbox.runner.interpreter import MisalignedAccess, OutOfBounds, recording


@triton.jit
def copy_kernel(x, out, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i + shift, mask=i < n)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def write_kernel(out, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i + shift, 1.0, mask=i < n)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(("shift", "element", "lanes"), [(1, 1000, 1), (-1, -1, 1), (1 << 20, 1 << 20, 64)])
def test_a_read_outside_names_argument_element_program_and_line(shift: int, element: int, lanes: int) -> None:
    storage = torch.zeros(3000)
    x, out = storage[1000:2000], torch.empty(1000)
    with pytest.raises(OutOfBounds) as caught:
        copy_kernel[(16,)](x, out, 1000, shift, BLOCK=64)
    error = caught.value
    assert (error.kernel, error.access, error.argument) == ("copy_kernel", "load", "x")
    assert error.offset == element
    assert error.elements == 1000
    assert error.program == (15 if shift == 1 else 0, 0, 0)
    assert error.line == line_of("value = tl.load(x + i + shift")
    assert f"element {element} of argument 'x'" in str(error)
    assert error.lanes >= lanes or shift == 1 << 20


def test_a_write_outside_leaves_the_neighbour_alone() -> None:
    storage = torch.zeros(2000)
    with pytest.raises(OutOfBounds) as caught:
        write_kernel[(16,)](storage[:1000], 1000, 5, BLOCK=64)
    assert caught.value.access == "store"
    assert caught.value.lanes == 5
    assert not storage[1000:].any()


def test_an_overrun_into_another_argument_is_no_access_to_it() -> None:
    storage = torch.zeros(2000)
    first, second = storage[:1000], storage[1000:]
    with pytest.raises(OutOfBounds) as caught:
        copy_kernel[(16,)](first, second, 1000, 500, BLOCK=64)
    assert caught.value.argument == "x"


def test_masked_lanes_are_not_accused() -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    copy_kernel[(1,)](x, out, 1000, 0, BLOCK=4096)
    assert torch.equal(x, out)


def test_an_empty_argument_has_no_element() -> None:
    with pytest.raises(OutOfBounds, match="has 0 elements"):
        write_kernel[(1,)](torch.empty(0), 1, 0, BLOCK=16)


@triton.jit
def strided_kernel(x, out, row_stride, column_stride, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out + i * BLOCK + j, tl.load(x + i * row_stride + j * column_stride))


def test_views_may_be_read_through_their_strides() -> None:
    x = torch.randn(16, 40).t()[8:24]
    out = torch.empty(16, 16)
    strided_kernel[(1,)](x, out, *x.stride(), BLOCK=16)
    assert torch.equal(out, x)


@triton.jit
def table_kernel(table, out, BLOCK: tl.constexpr):
    pointer = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + i, tl.load(pointer + i))


def test_addresses_loaded_from_memory_reach_living_tensors_only() -> None:
    tensors = [torch.randn(64) for _ in range(3)]
    out = torch.empty(3, 64)
    table_kernel[(3,)](torch.tensor([t.data_ptr() for t in tensors]), out, BLOCK=64)
    assert torch.equal(out, torch.stack(tensors))
    with pytest.raises(OutOfBounds, match="belongs to no tensor"):
        table_kernel[(1,)](torch.tensor([64]), out, BLOCK=64)


@triton.jit
def reinterpret_kernel(x, out):
    pointer = (x + 1).to(tl.pointer_type(tl.int32))
    tl.store(out, tl.load(pointer))


def test_a_misaligned_address_is_a_fault() -> None:
    with pytest.raises(MisalignedAccess, match="misaligned address in argument 'x'"):
        reinterpret_kernel[(1,)](torch.zeros(16, dtype=torch.int8), torch.zeros(1, dtype=torch.int32))


@triton.jit
def histogram_kernel(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + value, 1, mask=i < n)


def test_atomics_on_one_address_all_count() -> None:
    x = torch.randint(0, 5, (1000,), dtype=torch.int32)
    counts = torch.zeros(5, dtype=torch.int32)
    histogram_kernel[(8,)](x, counts, 1000, BLOCK=128)
    assert counts.tolist() == torch.bincount(x, minlength=5).tolist()


@triton.jit
def ticket_kernel(counter, order, largest, smallest, total):
    ticket = tl.atomic_add(counter, 1)
    tl.store(order + tl.program_id(0), ticket)
    value = (tl.program_id(0) * 7 % 13).to(tl.float32) - 6.0
    tl.atomic_max(largest, value)
    tl.atomic_min(smallest, value)
    tl.atomic_add(total, value.to(total.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_program_sees_the_sum_before_it(dtype: torch.dtype) -> None:
    counter, order = torch.zeros(1, dtype=torch.int32), torch.empty(13, dtype=torch.int32)
    largest, smallest, total = torch.zeros(1), torch.zeros(1), torch.zeros(1, dtype=dtype)
    ticket_kernel[(13,)](counter, order, largest, smallest, total)
    assert sorted(order.tolist()) == list(range(13))
    assert (largest.item(), smallest.item(), total.item()) == (6.0, -6.0, 0.0)


@triton.jit
def lock_kernel(lock, total):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + 1)
    tl.atomic_xchg(lock, 0)


def test_a_spin_lock_does_not_hang() -> None:
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    lock_kernel[(20,)](lock, total)
    assert total.item() == 20


@triton.jit
def last_program_kernel(x, partial, counter, out, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    tl.store(partial + program, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK)), 0))
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS)), 0))


def test_the_last_program_may_finish_a_reduction() -> None:
    x = torch.randint(-5, 5, (16, 32)).float()
    out, partial, counter = torch.zeros(1), torch.zeros(16), torch.zeros(1, dtype=torch.int32)
    last_program_kernel[(16,)](x, partial, counter, out, PROGRAMS=16, BLOCK=32)
    assert out.item() == x.sum().item()
    assert counter.item() == 16


@triton.jit
def block_pointer_kernel(x, out, M, N, CHECK: tl.constexpr, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    target = tl.make_block_ptr(out, (M, N), (N, 1), (tl.program_id(0) * BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    for _ in range(0, N, BLOCK):
        if CHECK:
            value = tl.load(source, boundary_check=(0, 1), padding_option="zero")
            tl.store(target, value * 2, boundary_check=(0, 1))
        else:
            tl.store(target, tl.load(source) * 2)
        source = tl.advance(source, (0, BLOCK))
        target = tl.advance(target, (0, BLOCK))


def test_block_pointers() -> None:
    x = torch.randn(50, 70)
    out = torch.zeros_like(x)
    block_pointer_kernel[(4,)](x, out, 50, 70, CHECK=True, BLOCK=16)
    assert torch.equal(out, x * 2)
    with pytest.raises(OutOfBounds):
        block_pointer_kernel[(4,)](x, out, 50, 70, CHECK=False, BLOCK=16)


@triton.jit
def descriptor_kernel(source, target, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]) + 1)


@triton.jit
def device_descriptor_kernel(x, out, M, N, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]) + 1)


def test_tensor_descriptors_of_host_and_device() -> None:
    x = torch.randn(40, 72)
    host, device = torch.zeros_like(x), torch.zeros_like(x)
    source, target = (TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, host))
    descriptor_kernel[(3, 5)](source, target, BLOCK=16)
    device_descriptor_kernel[(3, 5)](x, device, 40, 72, BLOCK=16)
    assert torch.equal(host, x + 1)
    assert torch.equal(device, x + 1)


def test_counts_are_distinct_bytes_and_requests() -> None:
    x, out = torch.randn(16, 16), torch.empty(16, 16)
    with recording(count=True) as launches:
        copy_kernel[(4,)](x, out, 256, 0, BLOCK=64)
        strided_kernel[(3,)](x, out, 0, 1, BLOCK=16)
    first, second = launches
    assert (first["kernel"], first["grid"], first["constants"]) == ("copy_kernel", [4, 1, 1], {"BLOCK": "64"})
    assert first["line"] == line_of("def copy_kernel")
    assert (first["bytes_read"], first["bytes_written"], first["bytes_requested"]) == (1024, 1024, 2048)
    assert (second["bytes_read"], second["bytes_written"], second["bytes_requested"]) == (64, 1024, 3 * 2048)


def test_kernels_take_tensors_that_say_they_are_on_a_gpu() -> None:
    with CudaOnHost(target_spec("h200").model_dump()):
        x = torch.randn(64, device="cuda")
        out = torch.empty_like(x)
        assert x.is_cuda
        copy_kernel[(1,)](x, out, 64, 0, BLOCK=64)
    assert torch.equal(x, out)


def test_disabled_kernels_do_nothing_and_are_listed() -> None:
    out = torch.zeros(64)
    with recording(disabled=True) as launches:
        write_kernel[(1,)](out, 64, 0, BLOCK=64)
    assert not out.any()
    assert [launch["kernel"] for launch in launches] == ["write_kernel"]
    write_kernel[(1,)](out, 64, 0, BLOCK=64)
    assert out.all()
