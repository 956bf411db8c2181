"""Fenced host memory."""

import ctypes
import os
import signal
from collections.abc import Iterator

import pytest
import torch

from services.contracts import TensorSpec
from services.sandbox.fence import HostFence
from services.sandbox.fence.host import HostBuffer
from services.sandbox.runner.memory import GUARD_BYTES, attach


def spec(shape: list[int], stride: list[int] | None = None, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, stride=stride or list(torch.empty(shape).stride()), dtype=dtype)


@pytest.fixture
def fence() -> Iterator[HostFence]:
    with HostFence() as fence:
        yield fence


def faults(address: int) -> bool:
    """Whether reading this byte kills a process by SIGSEGV."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(address, 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


def test_guards_on_both_sides_fault(fence: HostFence) -> None:
    buffer = fence.allocate(spec([1024]))
    start = buffer.tensor.data_ptr()
    end = start + 4096
    assert not faults(start)
    assert not faults(end - 1)
    assert faults(end)
    assert faults(end + GUARD_BYTES - 1)
    before = start - buffer.describe()["offset"]  # type: ignore[operator]
    assert faults(before - 1)
    assert faults(before - GUARD_BYTES)


@pytest.mark.parametrize(
    ("shape", "stride", "dtype"),
    [
        ([3, 5], None, "float32"),
        ([], [], "bfloat16"),
        ([0, 4], None, "float16"),
        ([4, 6], [1, 4], "int64"),
        ([8, 3], [0, 1], "float64"),
        ([5, 4], [2, 1], "float32"),
        ([7], [3], "bool"),
        ([2, 2], None, "complex128"),
        ([9], None, "float8_e4m3fn"),
    ],
)
def test_layout_survives_in_both_mappings(
    fence: HostFence, shape: list[int], stride: list[int] | None, dtype: str
) -> None:
    buffer = fence.allocate(spec(shape, stride, dtype))
    tensor = buffer.tensor
    assert list(tensor.shape) == shape
    assert list(tensor.stride()) == buffer.spec.stride
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.data_ptr() % 16 == 0
    other = attach(os.dup(buffer.fd), buffer.describe())
    assert other.stride() == tensor.stride()
    if tensor.numel():
        assert other.data_ptr() != tensor.data_ptr()
        ctypes.memset(tensor.data_ptr(), 1, tensor.untyped_storage().nbytes())
        assert torch.equal(other, tensor)
        assert bool((other != 0).all())
        assert other.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()


def test_a_write_beside_the_tensor_breaks_a_canary(fence: HostFence) -> None:
    for offset in (-1, 3):
        buffer = fence.allocate(spec([3], dtype="int8"))
        assert buffer.canaries_intact()
        ctypes.memset(buffer.tensor.data_ptr() + offset, 0, 1)
        assert not buffer.canaries_intact()


def test_poison_shows_and_leaves_the_canaries(fence: HostFence) -> None:
    floats, integers = fence.allocate(spec([5], dtype="bfloat16")), fence.allocate(spec([5], dtype="int32"))
    for buffer in (floats, integers):
        buffer.poison()
        assert buffer.canaries_intact()
    assert bool(floats.tensor.isnan().all())
    assert bool((integers.tensor.abs() > 1 << 28).all())


def test_checksum_sees_one_bit_and_gaps(fence: HostFence) -> None:
    buffer = fence.allocate(spec([4], [2]))
    before = buffer.checksum()
    buffer.tensor.untyped_storage()[4] = 1
    assert buffer.checksum() != before


def test_nobody_can_resize_it(fence: HostFence) -> None:
    buffer = fence.allocate(spec([4]))
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 0)


@pytest.mark.parametrize("bad", [spec([4], [-1]), TensorSpec(shape=[4], stride=[], dtype="int8"), spec([4], dtype="x")])
def test_it_refuses_what_no_tensor_can_be(fence: HostFence, bad: TensorSpec) -> None:
    with pytest.raises(ValueError, match=r"no tensor has|no dtype"):
        fence.allocate(bad)


def test_closing_releases_descriptors_and_memory() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def mappings() -> int:
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            return sum("memfd:fence" in line for line in maps)

    before = descriptors(), mappings()
    for _ in range(200):
        with HostFence() as fence:
            kept = fence.allocate(spec([100])).tensor
            kept.fill_(1)
    assert float(kept.sum()) == 100
    del kept, fence
    assert (descriptors(), mappings()) == before


def test_a_closed_buffer_keeps_its_tensor_readable() -> None:
    buffer = HostBuffer(spec([4]))
    tensor = buffer.tensor
    buffer.close()
    del buffer
    assert tensor.tolist() == [0, 0, 0, 0]
