"""Triton kernels on the CPU: right for every number format, exact about bounds, and counted.

Call `install()` before the first kernel is defined, in a process that has TRITON_INTERPRET=1 since before `import
triton`. Triton's own front end checks the types; what it asks its IR builder for is computed with numpy, many
programs of the grid at once.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..provenance import Provenance
from .errors import (
    DeviceAssertion,
    IllegalAccess,
    MisalignedAccess,
    NotInterpretable,
    OutOfBounds,
    UnsupportedLanguage,
)

__all__ = [
    "DeviceAssertion",
    "IllegalAccess",
    "MisalignedAccess",
    "NotInterpretable",
    "OutOfBounds",
    "UnsupportedLanguage",
    "install",
    "recording",
]

_installed = False
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def install() -> None:
    """Puts this interpreter in the place of Triton's, for the rest of the process.

    Raises RuntimeError where triton was imported without TRITON_INTERPRET=1: its library is compiled code then.
    """
    global _installed
    if _installed:
        return
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    if not isinstance(tl.standard.sum, interpreter.InterpretedFunction):
        raise RuntimeError("set TRITON_INTERPRET=1 before triton is imported")  # noqa: TRY004
    from . import language, launch, libdevice

    _keep_freed_memory()
    language.prepare()
    libdevice.prepare(language.bound)
    interpreter.InterpretedFunction.run = launch.run
    interpreter.InterpretedFunction.__call__ = launch.call_device
    Autotuner.run = launch.autotuned_run
    _installed = True


def _keep_freed_memory() -> None:
    """Lets glibc reuse the arrays of blocks: by default each is mapped anew, and page faults take most of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 256 << 20)
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)


@contextmanager
def recording(
    count: bool = False, disabled: bool = False, provenance: Provenance | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Lists every launch inside the block: name, line, file, grid, constants and, with `count`, bytes and FLOPs.

    `disabled` lists launches but runs none; `provenance` is told what each reads and writes, which needs `count`.
    Needs `install()`.
    """
    from . import launch

    with launch.recording(count, disabled, provenance) as launches:
        yield launches
