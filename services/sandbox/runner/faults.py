"""What user code did wrong, classified where it happened: a verdict and a report of the user's own lines."""

import linecache
import re
import traceback
from collections.abc import Iterator
from typing import Any

from .interpreter.errors import IllegalAccess

_MESSAGE_CHARS = 4000
_FRAMES = 20
_NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|Cannot allocate memory|std::bad_alloc")
_NO_CUDA = re.compile(r"not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs|not linked with support for cuda")


class SourceError(Exception):
    """The source lacks something; the message says what to write."""


def report(error: BaseException, path: str, stage: str) -> dict[str, Any]:
    """{"verdict", "report"} as `contracts.Verdict` and `contracts.ErrorReport` have them.

    `stage` is "load" or "run"; `path` is the user's file, whose frames alone are shown.
    """
    chain = list(_causes(error))
    illegal = next((item for item in chain if isinstance(item, IllegalAccess)), None)
    compilation = next((item for item in chain if _is_compilation(item)), None)
    root = illegal or compilation or chain[-1]
    frames = [frame for item in chain for frame in _frames(item, path)]
    found: dict[str, Any] = {
        "kind": type(root).__name__,
        "message": _message(root),
        "line": frames[-1]["line"] if frames else None,
        "frames": frames[:_FRAMES],
    }
    if isinstance(root, SyntaxError):
        found |= {"message": root.msg, "line": root.lineno, "column": root.offset, "detail": (root.text or "").rstrip()}
    if illegal is not None:
        found |= {"kernel": illegal.kernel, "line": illegal.line or found["line"]}
    found |= getattr(root, "place", {})
    return {"verdict": _verdict(root, chain, stage, found), "report": found}


def _verdict(root: BaseException, chain: list[BaseException], stage: str, found: dict[str, Any]) -> str:
    if any(isinstance(item, MemoryError) or _NO_MEMORY.search(str(item)) for item in chain):
        return "out_of_memory"
    if _NO_CUDA.search(str(root)):
        line = f"line {found['line']} of the source" if found["line"] else "the source"
        found["kind"] = "CudaUnavailable"
        found["message"] = f"{line} asks for a CUDA device: create tensors on the inputs' device (device=x.device)"
    if isinstance(root, IllegalAccess):
        return "illegal_memory"
    if _is_compilation(root):
        return "compile_error"
    return "load_error" if stage == "load" else "runtime_error"


def _is_compilation(error: BaseException) -> bool:
    """Triton's own compile errors, and its limits on shared memory and registers."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CompilationError", "OutOfResources", "PTXASError", "TargetCompileError"})


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from, outermost first; `raise ... from None` ends the chain."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else _wrapped(current))


def _wrapped(error: BaseException) -> BaseException | None:
    """A context counts only where a framework re-raised: the user's own `except: raise Other` is about Other."""
    return error.__context__ if type(error).__module__.partition(".")[0] in ("triton", "torch") else None


def _frames(error: BaseException, path: str) -> list[dict[str, Any]]:
    return [
        {"line": frame.lineno, "function": frame.name, "code": linecache.getline(path, frame.lineno or 0).strip()}
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path and frame.lineno
    ]


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the source ended the process (sys.exit({error.code!r}))"
    if isinstance(error, KeyError):
        return f"no such key: {error}"
    return (str(error) or "no message")[:_MESSAGE_CHARS]
