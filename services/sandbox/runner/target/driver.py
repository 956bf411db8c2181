"""A Triton driver for a GPU that is not there: kernels are specialised and compiled, launches only written down."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
_MAX_THREADS = 1024
_TIMEOUT_S = 60


@dataclass
class Launched:
    """One launch of a compiled kernel: Triton's source and metadata objects, and what the binary uses."""

    source: Any
    metadata: Any
    grid: tuple[int, int, int]
    registers: int
    spills: int


class TargetDriver(DriverBase):  # type: ignore[misc]
    """Answers as the GPU of `target` (fields of `contracts.GpuSpec`) would, and lists launches."""

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__()
        self.target = target
        self.utils = _Utilities(target)
        self.launches: list[Launched] = []
        self.compilations: dict[str, tuple[str, float]] = {}
        """PTX and seconds of each compilation, by its hash."""
        self.tuned: dict[str, int] = {}
        """Autotune configurations that compiled, by kernel."""
        self.refused: dict[str, list[str]] = {}
        """Autotune configurations that did not, and why, by kernel."""
        self.launcher_cls = self._launcher

    @classmethod
    def of(cls, target: dict[str, Any]) -> "TargetDriver":
        """The process's one driver of this target: Triton's caches hold on to it."""
        return _DRIVERS.setdefault(target["name"], cls(target))

    @classmethod
    def is_active(cls) -> bool:
        """Whether the driver can be used."""
        return True

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", self.target["compute_capability"], 32)

    def get_active_torch_device(self) -> torch.device:
        """The device that sources are told of."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The module with the device's functions."""
        return torch.cuda

    def map_python_to_cpp_type(self, name: str) -> str:
        """The launcher is not compiled: any name will do."""
        return name

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, _: int) -> None:
        """There is only one."""

    def get_current_stream(self, _: Any = 0) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, _: Any = 0) -> tuple[int, int]:
        """Major and minor."""
        major, minor = divmod(self.target["compute_capability"], 10)
        return major, minor

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Nothing to flush."""
        return torch.empty(1)

    def clear_cache(self, _: Any) -> None:
        """Nothing to flush."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Compiles a configuration by launching it once; the time is always 0."""

        def benchmark(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
            call()
            return [0.0, 0.0, 0.0]

        return benchmark

    def _launcher(self, source: Any, metadata: Any) -> Callable[..., None]:
        def launch(x: int, y: int, z: int, _: Any, function: tuple[int, int], *__: Any) -> None:
            self.launches.append(Launched(source, metadata, (x, y, z), *function))

        return launch


class _Utilities:
    """What Triton asks a driver's native helper."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = target

    def get_device_properties(self, _: int) -> dict[str, int]:
        """Properties under the names of Triton's CUDA driver."""
        target = self._target
        return {
            "max_shared_mem": target["shared_memory_bytes"],
            "max_num_regs": target["registers_per_sm"],
            "multiprocessor_count": target["sm_count"],
            "warpSize": 32,
        }

    def load_binary(self, _: str, cubin: bytes, __: int, ___: int) -> tuple[int, tuple[int, int], int, int, int]:
        """Module, function (here what it uses), registers, spilled registers, the most threads of a block."""
        usage = register_usage(cubin)
        return 1, usage, *usage, _MAX_THREADS

    def unload_module(self, _: int) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, _: int) -> None:
        """There is no device to print."""

    def cuOccupancyMaxActiveClusters(self, *_: Any) -> int:
        """Clusters that fit at once, by the count of processors alone."""
        return int(self._target["sm_count"])


_DRIVERS: dict[str, TargetDriver] = {}


def register_usage(cubin: bytes) -> tuple[int, int]:
    """Registers of one thread, and registers of 4 bytes that it spills to local memory, as cuobjdump reads them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_TOOLS / "cuobjdump"), "--dump-resource-usage", file.name]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout
    usage = {name: int(value) for name, value in _USAGE.findall(output)}
    # Spills are on the stack of a kernel; LOCAL is what the whole launch reserves beyond it.
    return usage.get("REG", 0), (usage.get("STACK", 0) + usage.get("LOCAL", 0)) // 4
