"""Runners: processes that execute user source for the judge, and never see what the judge knows.

A Runners object owns one zygote for each kind and role, and forks a fresh process from it for every spawn.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self

from services.contracts import AtenGraph, ErrorReport, Verdict
from services.sandbox.fence import Buffer, Fence
from services.sandbox.isolation import Isolation
from services.sandbox.replies import Forward, KernelCompile, Leaf, Loaded, Tree
from services.sandbox.settings import SandboxSettings


class RunnerKind(StrEnum):
    """interpret: kernels run on host memory in Triton's interpreter. compile: they are only compiled for the target."""

    INTERPRET = "interpret"
    COMPILE = "compile"


class Role(StrEnum):
    """Whose source the process runs. References and candidates never share a zygote."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"


class Precision(StrEnum):
    """float64: parameters, buffers and floating inputs are widened for this one call (the golden)."""

    AS_IS = "as_is"
    FLOAT64 = "float64"


class RunnerFault(Exception):
    """What the process did wrong, already classified as a candidate's fault; for a reference, the judge renames it."""

    def __init__(self, verdict: Verdict, report: ErrorReport) -> None:
        super().__init__(f"{verdict}: {report.kind}: {report.message}")
        self.verdict = verdict
        self.report = report


class InfrastructureFault(Exception):
    """Our own failure: no zygote, no memory, a process killed by someone else. Never blamed on user code."""


class Runners:
    """Owns the isolation, the zygotes and the fenced memory. Long-lived; use as a context manager.

    Construction starts nothing; a zygote starts at the first spawn of its kind and role (about 2.5 s), or by `warm`.
    Raises InfrastructureFault where user code cannot be shut in and SANDBOX_ALLOW_UNSAFE is not set.
    """

    isolation: Isolation
    fence: Fence
    """Allocate the buffers of a spawn from it; close them when done."""

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        raise NotImplementedError

    def warm(self) -> None:
        """Start every zygote now, in parallel."""
        raise NotImplementedError

    def spawn(self, kind: RunnerKind, role: Role, *, target: str = "h200", wall_s: float | None = None) -> "Runner":
        """Fork a fresh runner (about 10 ms), a context manager: everything of it is dead after exit.

        A zygote has one child at a time: spawning again for the same kind and role while one lives is a ValueError.
        `wall_s` is the default deadline of each of its calls.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Kill every process and release all memory."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Runner:
    """One process with one module. Every call has a deadline and raises RunnerFault or InfrastructureFault.

    After a fault in `load`, a timeout or a death the process is gone and every further call raises the same fault;
    after an exception in `make_inputs` or `forward` it can be used further.
    """

    def load(
        self,
        source: str,
        class_name: str,
        init: Tree | None = None,
        init_buffers: Sequence[Buffer] = (),
        *,
        seed: int = 0,
        map_cuda: bool = False,
        wall_s: float | None = None,
    ) -> Loaded:
        """Import the source under torch.manual_seed(seed) and build `class_name` in eval mode.

        With `init` (a reference's `Loaded.init`, its tensors in `init_buffers`) the class is built from these values;
        without it from the source's own get_init_inputs(). `map_cuda` lets device="cuda" in the source mean the host;
        otherwise it is a load_error that names the line.
        """
        raise NotImplementedError

    def export_init(self, buffers: Sequence[Buffer]) -> None:
        """Copy the tensors of `Loaded.init` to buffers of their specs, in leaf order."""
        raise NotImplementedError

    def read_state(self, buffers: Mapping[str, Buffer]) -> None:
        """Copy parameters, buffers or attributes, by name, to buffers of their specs."""
        raise NotImplementedError

    def write_state(self, buffers: Mapping[str, Buffer]) -> None:
        """Set parameters, buffers or attributes, by name, from buffers of the same shape and dtype."""
        raise NotImplementedError

    def make_inputs(self, seed: int, *, wall_s: float | None = None) -> Tree:
        """Call get_inputs() under torch.manual_seed(seed); the values stay in the runner until the next call."""
        raise NotImplementedError

    def export_inputs(self, buffers: Sequence[Buffer]) -> None:
        """Copy the tensors of the last make_inputs to buffers of their specs, in leaf order."""
        raise NotImplementedError

    def forward(
        self,
        inputs: Tree,
        buffers: Sequence[Buffer],
        *,
        train: bool = False,
        precision: Precision = Precision.AS_IS,
        kernels_disabled: bool = False,
        count: bool = False,
        seed: int | None = None,
        fill_uninitialized: float | None = None,
        wall_s: float | None = None,
    ) -> Forward:
        """Call forward(*inputs), the tensors of `inputs` being the buffers themselves (a mutation shows in them).

        Launches are always listed; `count` adds their bytes and FLOPs and the list of ATen calls. `kernels_disabled`
        makes every launch of a generated kernel do nothing. `seed` sets torch.manual_seed before the call.
        `fill_uninitialized` fills what torch.empty and its kin allocate with this value, to show unspecified values.
        Gradients are recorded only where an input requires them.
        """
        raise NotImplementedError

    def collect(self, buffers: Sequence[Buffer]) -> None:
        """Copy the outputs of the last forward to buffers of their specs, in leaf order."""
        raise NotImplementedError

    def trace(self, inputs: Tree, buffers: Sequence[Buffer], *, wall_s: float | None = None) -> AtenGraph:
        """The op's ATen graph; ValueError with one plain sentence where it has none."""
        raise NotImplementedError

    def compile_target(
        self, inputs: Tree, buffers: Sequence[Buffer], *, wall_s: float | None = None
    ) -> list[KernelCompile]:
        """On a COMPILE runner: compile each kernel that one forward launches. A compiler error is a RunnerFault."""
        raise NotImplementedError

    @property
    def printed(self) -> str:
        """The first 16 KiB of what the process wrote to stdout and stderr so far."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise NotImplementedError


__all__ = [
    "Forward",
    "InfrastructureFault",
    "KernelCompile",
    "Leaf",
    "Loaded",
    "Precision",
    "Role",
    "Runner",
    "RunnerFault",
    "RunnerKind",
    "Runners",
    "Tree",
]
