"""The values that a kernel computes with.

The interpreter runs a batch of programs at once. Axis 0 of every value is the program; it has length 1 where all
programs of the batch hold the same value, so what does not depend on the program id is computed once.
"""

from typing import Any

from .numeric import Array


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
