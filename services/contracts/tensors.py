"""How a tensor is laid out."""

from services.contracts.base import Message


class TensorSpec(Message):
    """Shape and strides in elements; dtype as torch names it without the prefix ("float32")."""

    shape: list[int]
    stride: list[int]
    dtype: str

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
