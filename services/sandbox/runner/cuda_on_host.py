"""`device="cuda"` on a machine without a GPU: the values live on the host, and `torch.cuda` describes the target.

Candidates are often written with `.cuda()`, `device="cuda"` or queries of the device; they then run unchanged.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from .target.driver import TargetDriver

_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")


class CudaOnHost(TorchFunctionMode):
    """Context manager: inside it "cuda" is the host's memory, and every tensor says that it is on "cuda:0".

    `target` has the fields of `contracts.GpuSpec`. Triton's active driver and `torch.cuda` answer as that GPU would.
    """

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__()
        self._target = target
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for owner, name, value in _replacements(self._target):
            _replace(self._undo, owner, name, value)
        self._undo.enter_context(_active_driver(self._target))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        self._undo.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answers what asks for a device; in every other call a CUDA device becomes the CPU."""
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args)
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {name: _on_host(value) for name, value in (kwargs or {}).items()}
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*(_on_host(value) for value in args), **kwargs)


def _no_numpy(*_: Any) -> Any:
    raise TypeError("can't convert a cuda:0 tensor to NumPy: forward's work belongs on the GPU, in kernels")


_ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.cuda: lambda tensor, *_: tensor,
    torch.Tensor.numpy: _no_numpy,
    torch.Tensor.__array__: _no_numpy,
    torch.Tensor.__dlpack__: _no_numpy,
    torch.Tensor.pin_memory: lambda tensor, *_: tensor,
    torch.Tensor.is_pinned: lambda *_: False,
    torch.Tensor.get_device: lambda *_: 0,
    torch.Tensor.record_stream: lambda *_: None,
    torch.Tensor.device.__get__: lambda *_: _CUDA,
    torch.Tensor.is_cuda.__get__: lambda *_: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda *_: False,  # type: ignore[attr-defined]
}


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


@contextlib.contextmanager
def _active_driver(target: dict[str, Any]) -> Iterator[None]:
    """Triton's driver of the target, unless one is active already."""
    from triton.runtime import driver

    before = driver._active
    if not isinstance(before, TargetDriver):
        driver.set_active(TargetDriver.of(target))
    try:
        yield
    finally:
        driver._active = before


def _replacements(target: dict[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    """Owner, name and stand-in of everything that would ask a CUDA driver."""
    for name, value in _queries(target).items():
        yield torch.cuda, name, value
    yield torch.nn.Module, "cuda", lambda self, device=None: self
    yield torch, "Generator", _HostGenerator
    yield torch, "set_default_device", _set_default_device


def _queries(target: dict[str, Any]) -> dict[str, Any]:
    major, minor = divmod(target["compute_capability"], 10)
    properties = _properties(target, major, minor)
    memory_bytes = properties.total_memory
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing(),
        "_lazy_init": _nothing(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "device": _nullcontext(),
        "device_of": _nullcontext(),
        "stream": _nullcontext(),
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: target["title"],
        "get_arch_list": lambda: [f"sm_{target['compute_capability']}"],
        "is_bf16_supported": lambda including_emulation=True: major >= 8,
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "ipc_collect": _nothing(),
        "reset_peak_memory_stats": _nothing(),
        "mem_get_info": lambda device=None: (memory_bytes, memory_bytes),
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "Stream": Stream,
        "Event": Event,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "set_stream": _nothing(),
        "CUDAGraph": _no_graphs,
        "graph": _no_graphs,
    }


def _properties(target: dict[str, Any], major: int, minor: int) -> SimpleNamespace:
    return SimpleNamespace(
        name=target["title"],
        major=major,
        minor=minor,
        total_memory=int(target["memory_gb"] * 1e9),
        multi_processor_count=target["sm_count"],
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=target["registers_per_sm"],
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target["shared_memory_bytes"],
        shared_memory_per_multiprocessor=target["shared_memory_bytes"] + 1024,
        L2_cache_size=target["l2_bytes"],
        is_integrated=0,
        is_multi_gpu_board=0,
    )


class Stream:
    """A CUDA stream on the host: everything has happened when a call returns."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, _: Any) -> None:
        """Nothing is pending."""

    wait_event = wait_stream

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def record_event(self, event: "Event | None" = None) -> "Event":
        """An event in the past."""
        return event or Event()


class Event:
    """A CUDA event on the host. It measures nothing: every elapsed time is 0."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Nothing is pending."""

    wait = record

    def synchronize(self) -> None:
        """Nothing is pending."""

    def query(self) -> bool:
        """Whether the event has happened."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds to another event; there is no device clock."""
        return 0.0


def _nothing() -> Callable[..., None]:
    """A new function each time: torch._dynamo refuses to know one function by two names."""
    return lambda *_, **__: None


def _nullcontext() -> Callable[..., contextlib.AbstractContextManager[Any]]:
    return lambda *_, **__: contextlib.nullcontext()


def _no_graphs(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("CUDA graphs need a GPU: launch the kernels directly")


_Generator = torch.Generator
_real_set_default_device = torch.set_default_device


class _IsGenerator(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)


class _HostGenerator(metaclass=_IsGenerator):
    """Stands for `torch.Generator`, also in annotations and isinstance."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Generator(_on_host(device))


def _set_default_device(device: Any) -> None:
    _real_set_default_device(_on_host(device))
