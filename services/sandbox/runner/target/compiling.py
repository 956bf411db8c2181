"""Runs a callable with launches that only compile, and says what each kernel would use on the target."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import compiler
from triton.errors import TritonError
from triton.runtime import driver as drivers
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources

from ..interpreter.rewriting import definition_line
from .driver import Launched, TargetDriver
from .failures import TargetCompileError, failure

MAX_CONFIGURATIONS = 16
"""Autotune configurations that are compiled for one kernel; each costs 0.1 to 1 s."""
MAX_TUNING_S = 20
"""After so long no further configuration is compiled, if one has been."""
_FEATURES = {
    "wgmma": re.compile(r"\bwgmma\.mma_async"),
    "tcgen05": re.compile(r"\btcgen05\.mma"),
    "mma.sync": re.compile(r"\bmma\.sync"),
    "cp.async": re.compile(r"\bcp\.async\.c[ag]\."),
    "tma": re.compile(r"\bcp\.async\.bulk\.tensor"),
    "vector loads": re.compile(r"\bld\.global[\w.:]*\.v[248]"),
}

__all__ = ["MAX_CONFIGURATIONS", "TargetCompileError", "compile_launches"]


def compile_launches(call: Callable[[], Any], target: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs `call` on CPU tensors and compiles each Triton kernel that it launches for `target`; none of them runs.

    `target` has the fields of `contracts.GpuSpec`. One dict for each compiled kernel: kernel, line, launches, grid (of
    its first launch), constants, registers, spills, shared_bytes, num_warps, num_stages, features (instructions seen in
    the PTX), configurations (of autotuning, compiled), failed_configurations (with the reason) and seconds.
    Raises TargetCompileError where a kernel does not compile or needs more than the GPU has. What kernels would have
    written is uninitialised, so the callable's result means nothing. Not in a process with TRITON_INTERPRET=1.
    """
    session = _Session(target)
    with session.active():
        try:
            call()
        except TritonError as error:
            raise failure(error) from error
    return session.reports()


class _Session:
    """One run: the driver that lists launches, what the compiler said, and how autotuning went."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._driver = TargetDriver.of(target)
        self._driver.launches.clear()
        self._tuning_s = 0.0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Puts driver, listener and autotuner in place."""
        if triton.knobs.runtime.interpret:
            raise RuntimeError("kernels cannot be compiled in a process that interprets them (TRITON_INTERPRET=1)")
        before = drivers._active
        saved = {name: Autotuner.__dict__[name] for name in ("_bench", "do_bench", "prune_configs")}
        make_ptx = CUDABackend.make_ptx
        drivers.set_active(self._driver)
        compiler.max_shared_mem.cache_clear()  # remembers the device of an earlier target
        triton.knobs.compilation.listener = self._listen
        Autotuner.do_bench = property(lambda tuner: self._driver.get_benchmarker())
        Autotuner._bench = self._bench(saved["_bench"])
        Autotuner.prune_configs = self._prune(saved["prune_configs"])
        CUDABackend.make_ptx = self._make_ptx(make_ptx)
        try:
            yield
        finally:
            for name, value in saved.items():
                setattr(Autotuner, name, value)
            CUDABackend.make_ptx = make_ptx
            triton.knobs.compilation.listener = None
            drivers._active = before
            compiler.max_shared_mem.cache_clear()

    def reports(self) -> list[dict[str, Any]]:
        """One for each compiled kernel that was launched."""
        groups: dict[str, list[Launched]] = {}
        for launch in self._driver.launches:
            groups.setdefault(launch.metadata.hash, []).append(launch)
        return [self._report(key, launches) for key, launches in groups.items()]

    def _report(self, key: str, launches: list[Launched]) -> dict[str, Any]:
        first = launches[0]
        function = first.source.fn
        name = function.__name__
        ptx, seconds = self._driver.compilations.get(key, ("", 0.0))
        return {
            "kernel": name,
            "line": definition_line(function.fn),
            "launches": len(launches),
            "grid": list(first.grid),
            "constants": _constants(first.source),
            "registers": first.registers,
            "spills": first.spills,
            "shared_bytes": first.metadata.shared,
            "num_warps": first.metadata.num_warps,
            "num_stages": first.metadata.num_stages,
            "features": [feature for feature, pattern in _FEATURES.items() if pattern.search(ptx)],
            "configurations": self._driver.tuned.get(name, 1),
            "failed_configurations": self._driver.refused.get(name, []),
            "seconds": seconds,
        }

    def _listen(self, *, metadata: dict[str, Any], metadata_group: dict[str, str], times: Any, **_: Any) -> None:
        path = next((path for name, path in metadata_group.items() if name.endswith(".ptx")), None)
        self._driver.compilations[metadata["hash"]] = (Path(path).read_text() if path else "", times.total / 1e6)

    def _make_ptx(self, make_ptx: Callable[..., Any]) -> Callable[..., Any]:
        """Refuses too much shared memory before the slow half of the compilation, not after it."""

        def checked(backend: Any, source: Any, metadata: dict[str, Any], *args: Any) -> Any:
            limit = self._driver.target["shared_memory_bytes"]
            if metadata["shared"] > limit:
                raise OutOfResources(metadata["shared"], limit, "shared memory")
            return make_ptx(backend, source, metadata, *args)

        return checked

    def _bench(self, bench: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """Compiles one configuration; of those that compile the one with the largest blocks counts as the fastest."""

        def compile_only(tuner: Any, *args: Any, config: Config, **meta: Any) -> list[float]:
            name = tuner.base_fn.__name__
            tuned, refused = self._driver.tuned, self._driver.refused.setdefault(name, [])
            if tuned.get(name) and self._tuning_s > MAX_TUNING_S:
                refused.append(f"{_described(config)}: not tried, {MAX_TUNING_S} s of compiling are over")
                return [float("inf")] * 3
            launched, start = len(self._driver.launches), time.monotonic()
            reason: list[str] = []
            benchmark = self._driver.get_benchmarker()

            def noted(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
                try:
                    return benchmark(call)
                except TritonError as error:
                    reason.append(f"{_described(config)}: {str(error).strip().splitlines()[-1]}")
                    raise

            Autotuner.do_bench = property(lambda tuner: noted)
            times = bench(tuner, *args, config=config, **meta)
            del self._driver.launches[launched:]
            self._tuning_s += time.monotonic() - start
            if reason:
                refused.extend(reason)
                return times
            tuned[name] = tuned.get(name, 0) + 1
            return [-float(_block_size(config))] * 3

        return compile_only

    def _prune(self, prune: Callable[..., list[Config]]) -> Callable[..., list[Config]]:
        def limited(tuner: Any, *args: Any, **kwargs: Any) -> list[Config]:
            configurations = prune(tuner, *args, **kwargs)
            left = len(configurations) - MAX_CONFIGURATIONS
            if left > 0:
                note = f"{left} more configurations were not tried: at most {MAX_CONFIGURATIONS} are"
                self._driver.refused.setdefault(tuner.base_fn.__name__, []).append(note)
            return configurations[:MAX_CONFIGURATIONS]

        return limited


def _constants(source: Any) -> dict[str, str]:
    function = source.fn
    named = {parameter.name for parameter in function.params if parameter.is_constexpr}
    values = {function.arg_names[path[0]]: value for path, value in source.constants.items() if len(path) == 1}
    return {name: str(getattr(value, "value", value)) for name, value in values.items() if name in named}


def _described(config: Config) -> str:
    options = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _block_size(config: Config) -> int:
    """The product of the configuration's integer constants, as the interpreter chooses by it."""
    size = 1
    for value in config.kwargs.values():
        if isinstance(value, int) and not isinstance(value, bool):
            size *= max(1, value)
    return size
