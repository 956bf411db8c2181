"""Runs Inductor for a GPU that is not there, and takes the Triton program that it writes.

The only module that touches Inductor's private parts. Everything it replaces is put back on leaving `pretended_gpu`.
"""

import contextlib
import functools
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.fx.traceback
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from services.contracts import GpuSpec
from services.inference.seed.errors import NoSeedError
from services.inference.seed.indexing import methods

_OPTIONS: dict[str, Any] = {
    # the text of this very call, compiled by nobody
    "fx_graph_cache": False,
    "autotune_local_cache": False,
    "compile_threads": 1,
    # one buffer, one name: a program that a person can follow, and kernels that autotuning may run again
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "size_asserts": False,
    "alignment_asserts": False,
    "nan_asserts": False,
    "layout_optimization": False,
    "comprehensive_padding": False,
    "assert_indirect_indexing": False,
    "triton.mix_order_reduction": False,
    "triton.tile_reductions": False,
    "benchmark_kernel": False,
    "combo_kernels": False,
    "epilogue_fusion": True,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "triton.autotune_at_compile_time": False,
    "triton.cudagraphs": False,
    "triton.cooperative_reductions": False,
    "triton.multi_kernel": 0,
    "triton.unique_kernel_names": True,
    "triton.descriptive_names": "original_aten",
    "triton.use_block_ptr": False,
    "triton.store_cubin": False,
    "split_reductions": True,
}
_lock = threading.RLock()
_last_target: list[str] = []


class _Written(Exception):
    """Carries the program out of Inductor before it is compiled."""

    def __init__(self, program: str) -> None:
        super().__init__("the program is written")
        self.program = program


def write_program(module: fx.GraphModule, inputs: list[torch.Tensor], fake: FakeTensorMode) -> str:
    """Inductor's Python module for an ATen graph of fake CUDA tensors; call it inside `pretended_gpu`."""
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    options = {name: value for name, value in _OPTIONS.items() if _has_option(config, name)}
    with ExitStack() as stack:
        for context in (torch.no_grad(), config.patch(options), tracing(TracingContext(fake)), V.set_fake_mode(fake)):
            stack.enter_context(context)
        stack.enter_context(warnings.catch_warnings())
        # what a kernel may do with fp32 is the op's policy, not a global switch
        warnings.filterwarnings("ignore", message="TensorFloat32")
        try:
            compile_fx_inner(module, inputs, is_inference=True)
        except Exception as error:
            written = _find_written(error)
            if written is None:
                raise NoSeedError(f"Inductor cannot compile it: {_first_line(error)}") from error
            return written.program
    raise NoSeedError("the forward computes nothing itself, so there is no kernel to write")


def decompose(module: fx.GraphModule, inputs: list[torch.Tensor], fake: FakeTensorMode) -> fx.GraphModule:
    """The same graph without mutation, in the operators that Inductor lowers."""
    from torch._decomp import decomposition_table
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.lowering import lowerings
    from torch.fx.experimental.proxy_tensor import make_fx

    table = select_decomp_table()
    # eager's own overloads, of which Inductor knows only those that its front end makes
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    unknown = {target for target in targets if target not in table and target not in lowerings}
    table = table | {target: decomposition_table[target] for target in unknown if target in decomposition_table}

    def run(*values: torch.Tensor) -> Any:
        return fx.Interpreter(module).run(*values)

    with torch.no_grad(), fake, fx.traceback.preserve_node_meta():
        traced = make_fx(
            torch.func.functionalize(run, remove="mutations"),
            decomposition_table=table,
            tracing_mode="real",
        )(*inputs)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    _refuse_writes(traced)
    return traced


def _refuse_writes(traced: fx.GraphModule) -> None:
    """Inductor drops a write in place that a decomposition itself makes, as that of aten.polar does."""
    for node in traced.graph.nodes:
        written = node.args[0] if node.args else None
        mutable = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if mutable and isinstance(written, fx.Node) and written.op != "placeholder":
            sources = node.meta.get("source_fn_stack") or [("", node.target)]
            raise NoSeedError(f"the compiler splits {sources[-1][1]} into writes in place, which it then loses")


@contextmanager
def pretended_gpu(spec: GpuSpec) -> Iterator[None]:
    """Inductor believes that the current CUDA device is this GPU. One thread at a time; leaves no trace."""
    with _lock, ExitStack() as stack:
        if _last_target != [spec.name]:
            _forget_devices()
            _last_target[:] = [spec.name]
        try:
            for target, name, value in _replacements(spec):
                stack.enter_context(patch.object(target, name, value))
            stack.enter_context(_active_driver(spec))
        except (ImportError, AttributeError) as error:
            raise NoSeedError(
                f"torch {torch.__version__} has another Inductor than the one this release was written for "
                f"(torch 2.11 to 2.13): {error}"
            ) from error
        yield


def _replacements(spec: GpuSpec) -> list[tuple[Any, str, Any]]:
    """What is replaced: (owner, attribute, value)."""
    import torch._dynamo.device_interface as interfaces
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import Scan

    major, minor = divmod(spec.compute_capability, 10)
    properties = _properties(spec)

    def written(program: str) -> None:
        raise _Written(program)

    splits_of_scan = Scan.num_splits

    def one_split(**scan: Any) -> tuple[Any, int]:
        return splits_of_scan(**scan)[0], 1

    def no_device(*_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: spec.title,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "synchronize": lambda device=None: None,
        "device": no_device,
    }
    worker: dict[str, Any] = {"get_device_properties": lambda device=None: properties, "current_device": lambda: 0}
    interface: dict[str, Any] = {
        "is_available": lambda: True,
        "get_compute_capability": lambda device=None: spec.compute_capability,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
        "get_device_properties": lambda device=None: properties,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
    }
    return [
        *((torch.cuda, name, value) for name, value in cuda.items()),
        *((interfaces.CudaInterface.Worker, name, staticmethod(value)) for name, value in worker.items()),
        *((interfaces.CudaInterface, name, staticmethod(value)) for name, value in interface.items()),
        *((torch.Tensor, name, value) for name, value in methods().items()),
        (interfaces.CudaInterface, "device", no_device),
        (torch.version, "cuda", torch.version.cuda or "13.0"),
        (GraphLowering, "save_output_code", staticmethod(written)),
        # a scan over several programs needs a workspace of locks, which no reviewer would accept
        (Scan, "num_splits", staticmethod(one_split)),
        # every reduction has rows and columns, also where Inductor would give each row its own program
        (TritonKernel, "want_no_x_dim", lambda self: False),
    ]


def _properties(spec: GpuSpec) -> SimpleNamespace:
    major, minor = divmod(spec.compute_capability, 10)
    return SimpleNamespace(
        name=spec.title,
        major=major,
        minor=minor,
        multi_processor_count=spec.sm_count,
        regs_per_multiprocessor=spec.registers_per_sm,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=int(spec.memory_gb * 1e9),
        L2_cache_size=spec.l2_bytes,
        shared_memory_per_block_optin=spec.shared_memory_bytes,
        shared_memory_per_multiprocessor=spec.shared_memory_bytes + 1024,
        gcnArchName="",
        uuid="0",
    )


@contextmanager
def _active_driver(spec: GpuSpec) -> Iterator[None]:
    """Triton's active driver answers for the target GPU while Inductor asks it."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_driver(spec))
    try:
        yield
    finally:
        driver._active = before


def _driver(spec: GpuSpec) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class DescribedDriver(DriverBase):  # type: ignore[misc]
        """Answers questions about the target; launches nothing."""

        def __init__(self) -> None:
            facts = {"max_shared_mem": spec.shared_memory_bytes, "multiprocessor_count": spec.sm_count}
            self.utils = SimpleNamespace(get_device_properties=lambda device: facts)

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", spec.compute_capability, 32)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

        def get_current_device(self) -> int:
            return 0

        def get_benchmarker(self) -> Any:
            raise NotImplementedError("there is no device to benchmark on")

    return DescribedDriver()


def _forget_devices() -> None:
    """Empties the caches of answers about the device. Others must stay: some stand for a registration done once."""
    import torch._inductor.utils
    import torch.utils._triton
    from torch._inductor.codecache import CacheBase
    from torch._inductor.runtime.hints import DeviceProperties

    owners = (torch._inductor.utils, torch.utils._triton, CacheBase, DeviceProperties)
    for value in [value for owner in owners for value in vars(owner).values()]:
        function = getattr(value, "__func__", value)
        if isinstance(function, functools._lru_cache_wrapper):
            function.cache_clear()


def _has_option(config: Any, name: str) -> bool:
    """Whether this torch has the option: names come and go between releases."""
    owner = config
    for part in name.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def _find_written(error: BaseException | None) -> _Written | None:
    while error is not None and not isinstance(error, _Written):
        error = error.__cause__ or error.__context__
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]
