"""Launching a kernel: arguments to virtual addresses, the grid in batches, and a record of what was launched."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.jit import TensorWrapper, mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from ..provenance import Provenance
from .errors import Diverged, IllegalAccess, UnsupportedLanguage
from .handle import Cost, Handle
from .language import BUILDER, SEMANTIC
from .memory import Memory
from .numeric import Array, numpy_type
from .rewriting import definition_line, rewrite

LANES = 1 << 17
"""Elements of the largest block of a batch, of all its programs together: more do not fit the processor's caches."""
FIRST_BATCH = 4
"""Programs that run together before it is known how large their blocks are."""
_MAX_SPLITS = 256
_GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA's own, for each dimension


@dataclass
class Recording:
    """Where launches are written down; `count` counts bytes, `disabled` makes kernels do nothing."""

    launches: list[dict[str, Any]] = field(default_factory=list)
    count: bool = False
    disabled: bool = False
    provenance: Provenance | None = None


_recordings: list[Recording] = []


@contextmanager
def recording(
    count: bool = False, disabled: bool = False, provenance: Provenance | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Lists every launch inside the block: name, line, grid, constants and, with `count`, bytes and FLOPs.

    `disabled` lists launches but runs none of them.
    """
    entry = Recording(count=count, disabled=disabled, provenance=provenance)
    _recordings.append(entry)
    try:
        yield entry.launches
    finally:
        _recordings.remove(entry)


def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
    """`kernel[grid](...)`: takes the place of `InterpretedFunction.run`."""
    if warmup:
        return
    kernel = _Kernel.of(self)
    bound = kernel.bind(args, kwargs)
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    shape = _grid_shape(grid, bound)
    entry = _recordings[-1] if _recordings else Recording()
    with torch._C.DisableTorchFunction():  # a tensor's `device` is its own here, not what cuda_on_host says
        launch = _Launch(kernel, shape, bound, entry.count)
        record = launch.describe()
        entry.launches.append(record)
        if entry.disabled or 0 in shape:
            return
        try:
            launch.run()
        except BaseException as error:
            record["failed"] = f"{type(error).__name__}: {error}"[:2000]
            raise
        finally:
            record.update(launch.measured())
            if entry.provenance is not None:
                entry.provenance.launched(launch.memory.touched("read"), launch.memory.touched("written"))


def call_device(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A jitted function called inside a kernel: takes the place of `InterpretedFunction.__call__`."""
    if _Launch.active is None:
        raise RuntimeError(
            f"{self.fn.__name__} is a Triton kernel: launch it with a grid, {self.fn.__name__}[grid](...)"
        )
    kwargs.pop("_semantic", None)
    kwargs.pop("_generator", None)
    kernel = _Kernel.of(self)
    if not kernel.constants:
        return kernel.function(*args, **kwargs)
    names = kernel.names
    args = tuple(_unwrapped(arg) if names[i] in kernel.constants else arg for i, arg in enumerate(args))
    kwargs = {name: _unwrapped(arg) if name in kernel.constants else arg for name, arg in kwargs.items()}
    return kernel.function(*args, **kwargs)


class _Kernel:
    """A jitted function made runnable: rewritten once, with its signature."""

    def __init__(self, function: Any) -> None:
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.names = list(self.signature.parameters)
        self.constants = frozenset(
            name for name, parameter in self.signature.parameters.items() if _is_constant(parameter.annotation)
        )
        self.line = definition_line(function)
        self.filename = function.__code__.co_filename
        self.function = rewrite(function)

    @staticmethod
    def of(interpreted: Any) -> "_Kernel":
        """The kernel behind an InterpretedFunction, made on first use."""
        kernel = interpreted.__dict__.get("_warpsmith_kernel")
        if kernel is None:
            kernel = interpreted._warpsmith_kernel = _Kernel(interpreted.fn)
        result: _Kernel = kernel
        return result

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Every parameter's value; launch options such as num_warps are left out."""
        options = {name: value for name, value in kwargs.items() if name in self.signature.parameters}
        bound = self.signature.bind(*args, **options)
        bound.apply_defaults()
        return dict(bound.arguments)


class _Launch:
    """One launch: converts the arguments, then runs the programs of the grid in batches."""

    active: "_Launch | None" = None

    def __init__(self, kernel: _Kernel, grid: tuple[int, int, int], bound: dict[str, Any], count: bool) -> None:
        self.kernel = kernel
        self.grid = grid
        self.bound = bound
        self.memory = Memory(kernel.name, kernel.filename, count)
        self.memory.program_id = self._program_id
        self.splits = 0
        self.programs: Array = np.zeros(1, np.int64)
        self.cost = Cost()

    def describe(self) -> dict[str, Any]:
        """Name, line, grid and compile-time constants."""
        constants = {
            name: str(_unwrapped(self.bound[name])) for name in self.kernel.names if name in self.kernel.constants
        }
        return {
            "kernel": self.kernel.name,
            "line": self.kernel.line,
            "file": self.kernel.filename,
            "grid": list(self.grid),
            "constants": constants,
            "bytes_read": None,
            "bytes_written": None,
            "bytes_requested": None,
            "flops": None,
            "dot_flops": None,
            "dot_dtype": "",
            "arguments": [],
        }

    def measured(self) -> dict[str, Any]:
        """What was counted: distinct bytes by argument and in all, requested bytes, element-wise and dot FLOPs."""
        if not self.memory.count:
            return {}
        dots = self.cost.dots
        arguments = [
            {"name": span.name, "bytes_read": span.touched("read"), "bytes_written": span.touched("written")}
            for span in self.memory.spans
        ]
        return {
            "bytes_read": sum(argument["bytes_read"] for argument in arguments),
            "bytes_written": sum(argument["bytes_written"] for argument in arguments),
            "bytes_requested": self.memory.requested_bytes,
            "flops": self.cost.operations,
            "dot_flops": sum(dots.values()),
            "dot_dtype": max(dots, key=lambda name: dots[name], default=""),
            "arguments": arguments,
        }

    def run(self) -> None:
        """Runs every program of the grid."""
        outer = _Launch.active
        _Launch.active = self
        BUILDER.memory = self.memory
        BUILDER.grid_dim = self.grid
        BUILDER.cost = self.cost
        BUILDER.largest_block = 1
        try:
            with np.errstate(all="ignore"):
                self.arguments = {name: self._convert(name, value) for name, value in self.bound.items()}
                self._run_grid()
        finally:
            _Launch.active = outer

    def _run_grid(self) -> None:
        total = self.grid[0] * self.grid[1] * self.grid[2]
        # The first programs show how large their blocks are.
        first = min(total, FIRST_BATCH)
        self._run_batch(np.arange(first))
        size = max(1, LANES // BUILDER.largest_block)
        for start in range(first, total, size):
            self._run_batch(np.arange(start, min(total, start + size)))

    def _run_batch(self, programs: Array) -> None:
        """Runs programs in lock-step; where their control flow differs, each group by itself, from the start."""
        requested, cost = self.memory.requested_bytes, self.cost.copy()
        try:
            self._attempt(programs)
            return
        except Diverged as fork:
            groups = [programs[fork.values == value] for value in np.unique(fork.values)]
            # A program may wait for one before it, as a scan that passes partial sums on does.
            groups.sort(key=lambda group: int(group[0]))
        except IllegalAccess:
            raise
        except Exception:
            # Run one by one, the failing program shows the error that it has on its own.
            if len(programs) == 1:
                raise
            groups = []
        self.memory.undo()
        self.memory.requested_bytes = requested
        self.cost = BUILDER.cost = cost
        self.splits += 1
        if self.splits > _MAX_SPLITS or not 1 < len(groups) <= max(2, len(programs) // 2):
            groups = [programs[i : i + 1] for i in range(len(programs))]
        for group in groups:
            self._run_batch(group)

    def _attempt(self, programs: Array) -> None:
        self.programs = programs
        width, height, _ = self.grid
        ids = (programs % width, programs // width % height, programs // (width * height))
        BUILDER.program_ids = [axis.astype(np.int32) for axis in ids]
        self.memory.programs = len(programs)
        self.memory.undoable = len(programs) > 1
        self.memory.forget()
        self.kernel.function(**self.arguments)

    def _program_id(self, row: int) -> tuple[int, int, int]:
        program = int(self.programs[min(row, len(self.programs) - 1)])
        width, height, _ = self.grid
        return program % width, program // width % height, program // (width * height)

    def _convert(self, name: str, value: Any) -> Any:
        """A launch argument as the kernel sees it."""
        if name in self.kernel.constants:
            return _unwrapped(value)
        if isinstance(value, (torch.Tensor, TensorWrapper)):
            return self._pointer(name, value)
        if isinstance(value, TensorDescriptor):
            return self._descriptor(name, value)
        if isinstance(value, tuple):
            converted = [self._convert(f"{name}[{i}]", item) for i, item in enumerate(value)]
            return type(value)(*converted) if hasattr(value, "_fields") else tl.tuple(converted)
        if isinstance(value, (bool, np.bool_)):
            return _scalar(bool(value), tl.int1)
        if isinstance(value, (int, np.integer)):
            return _scalar(int(value), _integer_type(int(value)))
        if isinstance(value, (float, np.floating)):
            return _scalar(float(value), tl.float32)
        return _unwrapped(value)

    def _pointer(self, name: str, value: Any) -> Any:
        tensor = value.base if isinstance(value, TensorWrapper) else value
        if tensor.device.type != "cpu":
            raise UnsupportedLanguage(f"argument '{name}' of {self.kernel.name} is on {tensor.device}, not on the CPU")
        try:
            kind = tl.str_to_ty(mangle_type(value), None)
        except KeyError:
            raise UnsupportedLanguage(
                f"argument '{name}' of {self.kernel.name} has dtype {tensor.dtype}, which Triton has no type for"
            ) from None
        address = self.memory.add(name, tensor)
        return tl.tensor(Handle(np.array([address], np.uint64), kind), kind)

    def _descriptor(self, name: str, value: Any) -> Any:
        return SEMANTIC.make_tensor_descriptor(
            base=self._pointer(name, value.base),
            shape=[_scalar(int(size), tl.int32) for size in value.shape],
            strides=[_scalar(int(stride), tl.int64) for stride in value.strides[:-1]] + [tl.constexpr(1)],
            block_shape=[tl.constexpr(int(size)) for size in value.block_shape],
            padding_option=value.padding,
        )


def _grid_shape(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    sizes = grid(bound) if callable(grid) else grid
    sizes = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has one to three dimensions, got {len(sizes)}")
    shape = [int(size) for size in sizes] + [1] * (3 - len(sizes))
    for size, limit in zip(shape, _GRID_LIMITS, strict=True):
        if not 0 <= size <= limit:
            raise ValueError(f"invalid grid {tuple(shape)}: a GPU takes at most {_GRID_LIMITS} programs")
    return shape[0], shape[1], shape[2]


def _scalar(value: Any, triton_type: Any) -> Any:
    return tl.tensor(Handle(np.array([value], numpy_type(triton_type)), triton_type), triton_type)


def _integer_type(value: int) -> Any:
    """The type that Triton's launcher gives a Python integer."""
    if -(2**31) <= value < 2**31:
        return tl.int32
    if -(2**63) <= value < 2**63:
        return tl.int64
    if value < 2**64:
        return tl.uint64
    raise ValueError(f"{value} does not fit any integer type of Triton")


def _is_constant(annotation: Any) -> bool:
    return annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation)


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def autotuned_run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Autotuner.run` without a GPU to time on: takes the configuration that needs the fewest programs."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configurations = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    config = max(configurations, key=_block_size)
    clash = sorted(kwargs.keys() & config.kwargs.keys())
    if clash:
        raise ValueError(f"the launch and the autotuner both set {', '.join(clash)}")
    self.best_config = config
    if config.pre_hook is not None:
        config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
    result = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return result


def _block_size(config: triton.Config) -> int:
    """The product of the configuration's integer constants."""
    size = 1
    for value in config.kwargs.values():
        if isinstance(value, int) and not isinstance(value, bool):
            size *= max(1, value)
    return size
