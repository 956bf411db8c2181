"""Runners: processes that execute user source for the judge, and never see what the judge knows.

A Runners object owns one zygote for each kind and role, and forks a fresh process from it for every spawn.
"""

import contextlib
import resource
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from services.contracts import AtenGraph, ErrorReport, Verdict, target_spec
from services.contracts.base import Message
from services.sandbox import endings
from services.sandbox.child import Child, ChildEnded, DeadlinePassed
from services.sandbox.endings import Fatal, InfrastructureFault, RunnerFault
from services.sandbox.fence import Buffer, Fence, HostFence
from services.sandbox.isolation import Isolation, IsolationRefused, probe
from services.sandbox.replies import Forward, KernelCompile, Leaf, Loaded, Tree
from services.sandbox.runner import wire
from services.sandbox.settings import SandboxSettings
from services.sandbox.zygote import Zygote, ZygoteError


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


_FILE_NAMES = {Role.REFERENCE: "op.py", Role.CANDIDATE: "candidate.py"}
_FORK_S = 20.0
_DESCRIPTORS = 16384
_Reply = TypeVar("_Reply", bound=Message)


class Runners:
    """Owns the isolation, the zygotes and the fenced memory. Long-lived; use as a context manager.

    Construction starts nothing; a zygote starts at the first spawn of its kind and role (about 2.5 s), or by `warm`.
    Raises InfrastructureFault where user code cannot be shut in and SANDBOX_ALLOW_UNSAFE is not set.
    """

    isolation: Isolation
    fence: Fence
    """Allocate the buffers of a spawn from it; close them when done."""

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self._settings = settings or SandboxSettings()
        _allow_many_descriptors()
        try:
            self.isolation = probe(self._settings)
        except IsolationRefused as refused:
            raise InfrastructureFault(str(refused)) from refused
        self.fence = HostFence()
        self._zygotes: dict[tuple[RunnerKind, Role], Zygote] = {}

    def warm(self) -> None:
        """Start every zygote that an evaluation needs now, their imports side by side."""
        pairs = [
            (RunnerKind.INTERPRET, Role.REFERENCE),
            (RunnerKind.INTERPRET, Role.CANDIDATE),
            (RunnerKind.COMPILE, Role.CANDIDATE),
        ]
        zygotes = [self._zygote(kind, role) for kind, role in pairs]
        with _ours():
            started = [zygote for zygote in zygotes if not zygote.running]
            for zygote in started:
                zygote.start()
            for zygote in started:
                zygote.wait_ready()

    @property
    def versions(self) -> dict[str, str]:
        """Versions of python, torch and triton as the zygotes report them; empty before the first start."""
        return next((zygote.versions for zygote in self._zygotes.values() if zygote.versions), {})

    def spawn(self, kind: RunnerKind, role: Role, *, target: str = "h200", wall_s: float | None = None) -> "Runner":
        """Fork a fresh runner (about 10 ms), a context manager: everything of it is dead after exit.

        A zygote has one child at a time: spawning again for the same kind and role while one lives is a ValueError.
        `wall_s` is the default deadline of each of its calls.
        """
        spec = target_spec(target)
        zygote = self._zygote(kind, role)
        if zygote.child is not None:
            raise ValueError(f"a {role} runner of kind {kind} is still open: close it first")
        # What a candidate started beside itself would work unseen: only compilers, which run no kernel, may be started.
        alone = kind is RunnerKind.INTERPRET and role is Role.CANDIDATE
        request = {"target": spec.model_dump(), "file_name": _FILE_NAMES[role], "alone": alone}
        for attempt in (1, 2):
            with _ours():
                if not zygote.running:
                    zygote.start()
                    zygote.wait_ready()
                child = Child(zygote, self._settings, request)
            try:
                child.receive(time.monotonic() + _FORK_S)
                return Runner(child, self._settings, wall_s or self._settings.call_s)
            except (ChildEnded, DeadlinePassed, wire.ProtocolError) as error:
                # what an earlier child left may be in the way: a fresh namespace has none of it
                child.end()
                zygote.stop()
                if attempt == 2:
                    raise InfrastructureFault(f"a runner did not start: {child.fault_text.strip() or error}") from error
        raise AssertionError("not reached")

    def close(self) -> None:
        """Kill every process and release all memory."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        self.fence.close()

    def _zygote(self, kind: RunnerKind, role: Role) -> Zygote:
        if (kind, role) not in self._zygotes:
            interpret = kind is RunnerKind.INTERPRET
            with _ours():
                zygote = Zygote(self.isolation, self._settings, interpret=interpret)
            self._zygotes[kind, role] = zygote
        return self._zygotes[kind, role]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Runner:
    """One process with one module. Every call has a deadline and raises RunnerFault or InfrastructureFault.

    After a timeout or a death the process is gone and every further call raises the same fault; after an exception in
    user code it can be used further.
    """

    def __init__(self, child: Child, settings: SandboxSettings, wall_s: float) -> None:
        self._child = child
        self._settings = settings
        self._wall_s = wall_s
        self._calls = 0
        self._attached: set[int] = set()
        self._buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self._fatal: Fatal | None = None
        self._oom_kills = endings.oom_kills()

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
        request = {
            "source": source,
            "class_name": class_name,
            "init": None if init is None else init.structure,
            "seed": seed,
            "map_cuda": map_cuda,
        }
        return self._parsed(Loaded, self._call("load", request, init_buffers, wall_s))

    def export_init(self, buffers: Sequence[Buffer]) -> None:
        """Copy the tensors of `Loaded.init` to buffers of their specs, in leaf order."""
        self._call("export", {"what": "init"}, buffers)

    def read_state(self, buffers: Mapping[str, Buffer]) -> None:
        """Copy parameters, buffers or attributes, by name, to buffers of their specs."""
        self._call("read_state", {"names": list(buffers)}, list(buffers.values()))

    def write_state(self, buffers: Mapping[str, Buffer]) -> None:
        """Set parameters, buffers or attributes, by name, from buffers of the same shape and dtype."""
        self._call("write_state", {"names": list(buffers)}, list(buffers.values()))

    def make_inputs(self, seed: int, *, wall_s: float | None = None) -> Tree:
        """Call get_inputs() under torch.manual_seed(seed); the values stay in the runner until the next call."""
        return self._parsed(Tree, self._call("make_inputs", {"seed": seed}, (), wall_s))

    def export_inputs(self, buffers: Sequence[Buffer]) -> None:
        """Copy the tensors of the last make_inputs to buffers of their specs, in leaf order."""
        self._call("export", {"what": "inputs"}, buffers)

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
        `fill_uninitialized` fills what torch.empty and its kin allocate with this value, to show unspecified values;
        it may be NaN. Gradients are recorded only where an input requires them.
        """
        request = {
            **_tree_request(inputs),
            "train": train,
            "precision": precision.value,
            "kernels_disabled": kernels_disabled,
            "count": count,
            "seed": seed,
            "fill_uninitialized": fill_uninitialized,
        }
        return self._parsed(Forward, self._call("forward", request, buffers, wall_s))

    def collect(self, buffers: Sequence[Buffer]) -> None:
        """Copy the outputs of the last forward to buffers of their specs, in leaf order."""
        self._call("export", {"what": "outputs"}, buffers)

    def trace(self, inputs: Tree, buffers: Sequence[Buffer], *, wall_s: float | None = None) -> AtenGraph:
        """The op's ATen graph; ValueError with one plain sentence where it has none."""
        answer = self._call("trace", _tree_request(inputs), buffers, wall_s)
        if "refused" in answer:
            raise ValueError(str(answer["refused"])[:2000])
        return self._parsed(AtenGraph, answer.get("graph"))

    def compile_target(
        self, inputs: Tree, buffers: Sequence[Buffer], *, wall_s: float | None = None
    ) -> list[KernelCompile]:
        """On a COMPILE runner: compile each kernel that one forward launches. A compiler error is a RunnerFault."""
        kernels = self._call("compile", _tree_request(inputs), buffers, wall_s).get("kernels")
        if not isinstance(kernels, list):
            raise self._violation("no list of kernels")
        return [self._parsed(KernelCompile, kernel) for kernel in kernels]

    @property
    def printed(self) -> str:
        """The first 16 KiB of what the process wrote to stdout and stderr so far."""
        return self._child.printed

    def close(self) -> None:
        """Kill everything of it."""
        self._child.end()

    def _call(
        self, call: str, request: dict[str, Any], buffers: Sequence[Buffer] = (), wall_s: float | None = None
    ) -> dict[str, Any]:
        if self._fatal is not None:
            raise self._fatal
        wall_s = wall_s or self._wall_s
        deadline = time.monotonic() + wall_s
        request = {"call": call, **request, "keys": [buffer.key for buffer in buffers]}
        try:
            self._attach(buffers, deadline)
            return self._exchange(request, (), deadline)
        except DeadlinePassed:
            raise self._die(endings.timed_out(call, wall_s, self._child.fault_text)) from None
        except ChildEnded as error:
            grown = endings.oom_kills() != self._oom_kills
            raise self._die(endings.ended(call, error.ended, self._child, self._settings, grown)) from None
        except (wire.ProtocolError, ValidationError) as error:
            raise self._violation(str(error)) from None

    def _attach(self, buffers: Sequence[Buffer], deadline: float) -> None:
        """Send the descriptors of buffers that the process has not mapped yet, and drop those that are gone."""
        gone = self._attached - set(self._buffers)
        new = [buffer for buffer in buffers if buffer.key not in self._buffers]
        batches = [new[i : i + wire.FDS_PER_FRAME] for i in range(0, len(new), wire.FDS_PER_FRAME)]
        for batch in batches or ([[]] if gone else []):
            layouts = [buffer.describe() for buffer in batch]
            request = {"call": "attach", "attach": layouts, "drop": sorted(gone)}
            self._exchange(request, [buffer.fd for buffer in batch], deadline)
            self._attached -= gone
            gone = set()
            for buffer in batch:
                self._attached.add(buffer.key)
                self._buffers[buffer.key] = buffer

    def _exchange(self, request: dict[str, Any], fds: Sequence[int], deadline: float) -> dict[str, Any]:
        self._calls += 1
        self._child.send({"id": self._calls, **request}, fds, deadline)
        answer = self._child.receive(deadline)
        if answer.get("id") != self._calls:
            raise wire.ProtocolError("an answer that nobody asked for")
        if "error" in answer:
            raise endings.reported(answer["error"])
        if not isinstance(answer.get("ok"), dict):
            raise wire.ProtocolError("an answer without a result")
        return dict(answer["ok"])

    def _parsed(self, model: type[_Reply], answer: object) -> _Reply:
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            raise self._violation(str(error)) from None

    def _violation(self, what: str) -> Fatal:
        """The process spoke out of turn: user code wrote to its socket, or changed the runner's own code."""
        report = ErrorReport(
            kind="ProtocolViolation",
            message="the process gave an answer that is not the runner's: user code must leave its process alone",
            detail=what[:2000],
        )
        fault = RunnerFault(Verdict.RUNTIME_ERROR, report)
        return self._die(fault)

    def _die(self, fault: Fatal) -> Fatal:
        self._child.end()
        self._fatal = fault
        return fault

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _allow_many_descriptors() -> None:
    """Each parameter of a module is a descriptor while it is copied."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _tree_request(inputs: Tree) -> dict[str, Any]:
    return {"structure": inputs.structure, "requires_grad": [leaf.requires_grad for leaf in inputs.leaves]}


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except (ZygoteError, OSError) as error:
        raise InfrastructureFault(str(error)) from error


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
