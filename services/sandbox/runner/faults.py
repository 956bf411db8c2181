"""What user code did wrong, classified where it happened: a verdict and a report of the user's own lines."""

import linecache
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .interpreter.errors import DeviceAssertion, IllegalAccess

_LAUNCH = str(Path(__file__).parent / "interpreter" / "launch.py")

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
    try:
        return _report(error, path, stage)
    except BaseException as second:  # noqa: BLE001 (an exception class may do anything when asked for its text)
        message = f"the exception cannot be read: {type(second).__name__}"
        plain = {"kind": type(error).__name__, "message": message}
        return {"verdict": "load_error" if stage == "load" else "runtime_error", "report": plain}


def _report(error: BaseException, path: str, stage: str) -> dict[str, Any]:
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
    kernel = _kernel_of(root, path)
    if kernel:
        found["kernel"] = kernel
    if illegal is not None:
        found |= {"kernel": illegal.kernel, "line": illegal.line or found["line"]}
    found |= getattr(root, "place", {})
    return {"verdict": _verdict(root, chain, stage, found, in_kernel=bool(kernel)), "report": found}


def _verdict(
    root: BaseException, chain: list[BaseException], stage: str, found: dict[str, Any], *, in_kernel: bool
) -> str:
    if any(isinstance(item, MemoryError) or _NO_MEMORY.search(str(item)) for item in chain):
        return "out_of_memory"
    if _NO_CUDA.search(str(root)):
        line = f"line {found['line']} of the source" if found["line"] else "the source"
        found["kind"] = "CudaUnavailable"
        found["message"] = f"{line} asks for a CUDA device: create tensors on the inputs' device (device=x.device)"
    if isinstance(root, IllegalAccess) or (isinstance(root, IndexError) and _raised_by_interpreter(root)):
        return "illegal_memory"
    # Python in a kernel's body runs when Triton compiles it; only an assertion of the device fails later
    if _is_compilation(root) or (in_kernel and not isinstance(root, DeviceAssertion)):
        return "compile_error"
    return "load_error" if stage == "load" else "runtime_error"


def _is_compilation(error: BaseException) -> bool:
    """Triton's own compile errors, and its limits on shared memory and registers."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CompilationError", "OutOfResources", "PTXASError", "TargetCompileError"})


def _kernel_of(error: BaseException, path: str) -> str:
    """The interpreted kernel in which it was raised; "" outside of kernels."""
    launched = False
    for frame in traceback.extract_tb(error.__traceback__):
        if launched and frame.filename == path:
            return frame.name
        launched = launched or frame.filename == _LAUNCH
    return ""


def _raised_by_interpreter(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).parent == Path(_LAUNCH).parent


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
