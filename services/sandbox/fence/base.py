"""The interface of fenced memory; one implementation for each kind of memory."""

from types import TracebackType
from typing import Protocol, Self

from torch import Tensor

from services.contracts import TensorSpec


class Buffer(Protocol):
    """One fenced tensor, mapped by the judge and, by its file descriptor, by a runner.

    Its end is flush against a guard region; a canary fills what is left before and after it.
    """

    spec: TensorSpec
    key: int
    """Names the buffer in messages; unique in this process."""

    @property
    def tensor(self) -> Tensor:
        """The judge's own view of the memory, laid out as `spec` says."""

    @property
    def fd(self) -> int:
        """To send to a runner."""

    def describe(self) -> dict[str, object]:
        """What a runner needs to map the descriptor, as JSON-able values."""

    def poison(self) -> None:
        """Fill every byte so that an unwritten element is seen: NaN for floats, large odd values for integers."""

    def canaries_intact(self) -> bool:
        """Whether nothing wrote beside the tensor, between it and the guards."""

    def checksum(self) -> str:
        """Digest of every byte in the tensor's span, gaps included."""

    def close(self) -> None:
        """Unmap and close; `tensor` must not be used any more."""


class Fence(Protocol):
    """Allocates fenced buffers; closing it closes all of them."""

    def allocate(self, spec: TensorSpec) -> Buffer:
        """New zero-filled memory for one tensor. ValueError for a dtype or layout that cannot be."""

    def close(self) -> None:
        """Close every buffer that is still open."""

    def __enter__(self) -> Self:
        """Itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
