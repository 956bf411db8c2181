"""Triton's compile errors as one exception that names the place in the user's file."""

import gc
from typing import Any

from triton.compiler.errors import CompilationError
from triton.errors import TritonError
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from ..interpreter.rewriting import definition_line


class TargetCompileError(Exception):
    """A kernel that the target cannot have. `place` holds line, column, kernel and detail (the compiler's own text)."""

    def __init__(self, message: str, place: dict[str, Any]) -> None:
        super().__init__(message)
        self.message = message
        self.place = place

    @property
    def line(self) -> int | None:
        """Line of the user's file."""
        return self.place.get("line")

    @property
    def column(self) -> int | None:
        """Column of the user's file, from 0."""
        return self.place.get("column")

    @property
    def kernel(self) -> str:
        """The kernel's or device function's name."""
        return str(self.place.get("kernel", ""))


def failure(error: TritonError) -> TargetCompileError:
    """The error as the user should read it."""
    if isinstance(error, OutOfResources):
        message = f"the GPU has not enough {error.name}: {error.required} needed, {error.limit} available"
        return TargetCompileError(f"{message}; use smaller blocks or fewer num_stages", {"kernel": _launched(error)})
    if isinstance(error, CompilationError):
        return _front_end(error)
    return TargetCompileError(str(error).strip().splitlines()[0], {"kernel": _launched(error), "detail": str(error)})


def _front_end(error: CompilationError) -> TargetCompileError:
    """The innermost place that is in the user's own code, with the innermost message."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    message = next((text for item in reversed(chain) if (text := _own_message(item))), "compilation failed")
    place: dict[str, Any] = {"detail": str(error)}
    for item in chain:
        if isinstance(item, CompilationError):
            function = _function_of(item.src)
            if function is not None and function.__module__.split(".")[0] != "triton":
                place |= _place(item, function)
    return TargetCompileError(message, place)


def _own_message(error: BaseException) -> str:
    if isinstance(error, CompilationError):
        return error.error_message or ""
    return str(error)


def _place(error: CompilationError, function: Any) -> dict[str, Any]:
    line = (definition_line(function.fn) or 1) + getattr(error.node, "lineno", 1) - 1
    return {"kernel": function.__name__, "line": line, "column": getattr(error.node, "col_offset", None)}


def _function_of(source: str | None) -> Any:
    """The jitted function with this source: the error itself carries only text."""
    if source is None:
        return None
    # By type(): isinstance would ask lazy modules' proxies among the objects for their class.
    candidates = (item for item in gc.get_objects() if issubclass(type(item), JITFunction))
    return next((item for item in candidates if item.src == source), None)


def _launched(error: BaseException) -> str:
    """The kernel whose launch raised the error, from the frames of Triton's launcher."""
    trace = error.__traceback__
    name = ""
    while trace is not None:
        function = trace.tb_frame.f_locals.get("self")
        if isinstance(function, JITFunction):
            name = function.__name__
        trace = trace.tb_next
    return name
