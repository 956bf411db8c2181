"""Views are written as one reads them, and mean the same."""

import pytest
import torch

from services.contracts import TensorSpec
from services.inference.seed.views import view_text

BASE = torch.arange(24.0).view(4, 6)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(shape=list(tensor.shape), stride=list(tensor.stride()), dtype="float32")


@pytest.mark.parametrize(
    ("base", "view", "text"),
    [
        (BASE, BASE, "x"),
        (BASE, BASE.t(), "x.t()"),
        (BASE, BASE.view(2, 2, 6), "x.view(2, 2, 6)"),
        (BASE.view(2, 3, 4), BASE.view(2, 3, 4).transpose(0, 2), "x.transpose(0, 2)"),
        (BASE.view(2, 3, 4), BASE.view(2, 3, 4).permute(1, 2, 0), "x.permute(1, 2, 0)"),
        (BASE, BASE.view(2, 2, 6).transpose(1, 2), "x.view(2, 2, 6).transpose(1, 2)"),
        (BASE, BASE.view(2, 2, 2, 3).permute(0, 2, 1, 3), "x.view(2, 2, 2, 3).transpose(1, 2)"),
        (BASE, BASE[1:3, ::2], "x.as_strided((2, 3), (6, 2), 6)"),
        (BASE, BASE.diagonal(), "x.as_strided((4,), (7,))"),
    ],
)
def test_a_view_addresses_the_same_elements(base: torch.Tensor, view: torch.Tensor, text: str) -> None:
    offset = int(view.storage_offset() - base.storage_offset())
    written = view_text("x", spec_of(base), spec_of(view), offset, own_storage=True)
    assert written == text
    torch.testing.assert_close(eval(written, {"x": base}), view)  # noqa: S307


def test_a_view_of_an_input_starts_where_the_input_does() -> None:
    base = torch.arange(30.0)[6:].view(4, 6)
    view = base[1:, 1:]
    offset = int(view.storage_offset() - base.storage_offset())
    written = view_text("x", spec_of(base), spec_of(view), offset, own_storage=False)
    torch.testing.assert_close(eval(written, {"x": base}), view)  # noqa: S307
