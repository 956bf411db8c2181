"""What a kernel can do wrong in the interpreter, and the signal that programs of a batch took different ways."""

from typing import Any

import numpy as np


class IllegalAccess(IndexError):
    """A lane touched memory that it may not touch. `argument` is empty for an address loaded from memory.

    `offset` counts elements of the pointer's own type from the start of the argument; `lanes` of `active` lanes were
    at fault; `program` is the program id of the first of them; `line` is the line in the kernel's file.
    """

    def __init__(
        self,
        kernel: str,
        access: str,
        argument: str,
        offset: int,
        elements: int,
        lanes: int,
        active: int,
        program: tuple[int, int, int],
        line: int | None,
    ) -> None:
        self.kernel = kernel
        self.access = access
        self.argument = argument
        self.offset = offset
        self.elements = elements
        self.lanes = lanes
        self.active = active
        self.program = program
        self.line = line
        super().__init__(self._message())

    def _where(self) -> str:
        place = f" at line {self.line}" if self.line else ""
        return f"{self.access} in kernel {self.kernel}{place}, program {self.program}"

    def _message(self) -> str:
        raise NotImplementedError


class OutOfBounds(IllegalAccess):
    """Unmasked lanes outside the argument's own memory."""

    def _message(self) -> str:
        lanes = f"{self.lanes} of {self.active} unmasked lanes"
        if not self.argument:
            return f"{self._where()}: {lanes} use an address that belongs to no tensor ({self.offset:#x})"
        return (
            f"{self._where()}: {lanes} are out of bounds; the first is at element {self.offset} of argument "
            f"'{self.argument}', which has {self.elements} elements"
        )


class MisalignedAccess(IllegalAccess):
    """An address that is no multiple of the element's size."""

    def _message(self) -> str:
        return f"{self._where()}: misaligned address in argument '{self.argument}', near element {self.offset}"


class DeviceAssertion(AssertionError):
    """`tl.device_assert` or `tl.assume` with a false condition."""


class UnsupportedLanguage(NotImplementedError):
    """A construct that Triton's own compiler refuses as well."""


class NotInterpretable(NotImplementedError):
    """A construct that runs on a GPU but not in this interpreter: no fault of the kernel's author."""


class Diverged(BaseException):
    """Programs of one batch need different control flow; `values` holds each program's decision.

    Not an Exception, so that a kernel's caller never sees it.
    """

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        super().__init__("programs of one batch took different ways")
        self.values = values
