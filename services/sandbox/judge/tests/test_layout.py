import pytest
import torch

from services.contracts import TensorSpec
from services.sandbox.judge.layout import clone_layout, contiguous, core_view, dtype_of, spec_bytes, tensor_spec


def test_a_copy_keeps_strides_and_values() -> None:
    for tensor in (torch.randn(3, 4).t(), torch.randn(4).expand(3, 4), torch.randn(8)[::2], torch.tensor(1.0)):
        copy = clone_layout(tensor)
        assert copy.stride() == tensor.stride()
        assert torch.equal(copy, tensor)
        assert copy.data_ptr() != tensor.data_ptr()


def test_sizes_count_a_broadcast_dimension_once() -> None:
    assert spec_bytes(tensor_spec(torch.randn(4).expand(3, 4))) == 16
    assert spec_bytes(tensor_spec(torch.zeros(0, 5))) == 0


def test_contiguous_gives_row_major_strides() -> None:
    assert contiguous(tensor_spec(torch.randn(3, 4, 5).permute(2, 0, 1))).stride == [12, 4, 1]


def test_the_core_of_a_scalar_is_itself() -> None:
    assert core_view(torch.tensor(2.0)).shape == ()


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        dtype_of(TensorSpec(shape=[1], stride=[1], dtype="nonsense"))
