"""The values that a kernel computes with.

The interpreter runs a batch of programs at once. Axis 0 of every value is the program; it has length 1 where all
programs of the batch hold the same value, so what does not depend on the program id is computed once.
"""

from dataclasses import dataclass, field
from typing import Any

from .numeric import Array


@dataclass
class Cost:
    """FLOPs of one launch: element-wise operations, one each, and tl.dot by the format in which it multiplies."""

    operations: int = 0
    dots: dict[str, int] = field(default_factory=dict)

    def copy(self) -> "Cost":
        """The same numbers, for taking back what a repeated batch adds."""
        return Cost(self.operations, dict(self.dots))


class Handle:
    """A value of every program: `data[program, *block]`, a scalar `data[program]`; `dtype` is Triton's scalar type."""

    __slots__ = ("attr", "data", "dtype")

    def __init__(self, data: Array, dtype: Any) -> None:
        self.data = data
        self.dtype = dtype
        self.attr: dict[str, Any] = {}

    def set_attr(self, name: str, value: Any) -> None:
        """Takes a compiler hint; it changes nothing here."""
        self.attr[name] = value
