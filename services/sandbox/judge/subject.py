"""A module loaded in a runner, with fenced buffers of its own: ask it with values, get its answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from torch import Tensor

from services.contracts import TensorSpec
from services.sandbox.fence import Buffer, Fence
from services.sandbox.judge.layout import (
    clone_layout,
    contiguous,
    copy_values,
    is_narrow_float,
    same_layout,
    span_bytes,
    spec_bytes,
    tensor_spec,
)
from services.sandbox.judge.roofline import describe_bytes
from services.sandbox.replies import Forward, Leaf, Loaded, Tree
from services.sandbox.runners import Precision, Runner


@dataclass(frozen=True)
class Answer:
    """One forward: what was returned (in the judge's own memory), and what happened to the inputs."""

    forward: Forward
    outputs: list[Tensor]
    mutated: list[int]
    """Indices of input leaves whose bytes changed."""
    canaries_intact: bool

    @property
    def tree(self) -> Tree:
        """The outputs' structure and specs."""
        return self.forward.outputs


_LIMIT_BYTES = 512 << 20
"""Of tensors that the judge takes over at once; it holds several copies, some of them in float64."""


class UnsupportedOutput(ValueError):
    """Tensors cannot be fetched: too large, or of an unsupported dtype; `code` is the finding's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Subject:
    """A loaded module. Input buffers are kept between calls: values change at the same addresses. A context manager."""

    def __init__(self, runner: Runner, fence: Fence, loaded: Loaded, *, output_limit_bytes: int = _LIMIT_BYTES) -> None:
        self.runner = runner
        self.loaded = loaded
        self._fence = fence
        self._limit = output_limit_bytes
        self._inputs: list[Buffer] = []

    def ask(
        self,
        tree: Tree,
        values: Sequence[Tensor],
        *,
        train: bool = False,
        precision: Precision = Precision.AS_IS,
        kernels_disabled: bool = False,
        count: bool = False,
        seed: int | None = None,
        fill_uninitialized: float | None = None,
        wall_s: float | None = None,
        expected: Tree | None = None,
    ) -> Answer:
        """Run forward on these values. Outputs of other shapes or dtypes than `expected` are not fetched."""
        buffers = self._filled(tree.leaves, values)
        before = [buffer.checksum() for buffer in buffers]
        forward = self.runner.forward(
            tree, buffers, train=train, precision=precision, kernels_disabled=kernels_disabled, count=count,
            seed=seed, fill_uninitialized=fill_uninitialized, wall_s=wall_s,
        )  # fmt: skip
        mutated = [i for i, buffer in enumerate(buffers) if buffer.checksum() != before[i]]
        intact = all(buffer.canaries_intact() for buffer in buffers)
        fetch = expected is None or same_layout(expected, forward.outputs)
        outputs, outputs_intact = self._collect(forward.outputs) if fetch else ([], True)
        return Answer(forward, outputs, mutated, intact and outputs_intact)

    def filled_buffers(self, tree: Tree, values: Sequence[Tensor]) -> list[Buffer]:
        """The input buffers holding these values, for calls on the runner itself."""
        return self._filled(tree.leaves, values)

    def close(self) -> None:
        """Release the input buffers."""
        for buffer in self._inputs:
            buffer.close()
        self._inputs = []

    def _filled(self, leaves: Sequence[Leaf], values: Sequence[Tensor]) -> list[Buffer]:
        specs = [leaf.spec for leaf in leaves]
        if [buffer.spec for buffer in self._inputs] != specs:
            self.close()
            self._inputs = [self._fence.allocate(spec) for spec in specs]
        for buffer, value in zip(self._inputs, values, strict=True):
            copy_values(buffer.tensor, value)
        return self._inputs

    def _collect(self, tree: Tree) -> tuple[list[Tensor], bool]:
        specs = [contiguous(leaf.spec) for leaf in tree.leaves]
        _refuse_unsupported(tree, specs, self._limit)
        buffers: list[Buffer] = []
        try:
            for spec in specs:
                buffers.append(self._fence.allocate(spec))
                buffers[-1].poison()
            self.runner.collect(buffers)
            return [buffer.tensor.clone() for buffer in buffers], all(buffer.canaries_intact() for buffer in buffers)
        finally:
            for buffer in buffers:
                buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _refuse_unsupported(tree: Tree, specs: Sequence[TensorSpec], limit_bytes: int) -> None:
    for path, spec in zip(tree.paths(), specs, strict=True):
        if spec.dtype.startswith("complex"):
            raise UnsupportedOutput("complex_output", f"output{path} is {spec}: complex outputs are not supported yet")
        if is_narrow_float(spec):
            raise UnsupportedOutput("unsupported_tensor", f"output{path} is {spec}")
    size = sum(spec_bytes(spec) for spec in specs)
    if size > limit_bytes:
        raise UnsupportedOutput("output_too_large", f"the outputs take {size} bytes; the limit is {limit_bytes}")


def draw_inputs(runner: Runner, fence: Fence, seed: int, *, wall_s: float | None = None) -> tuple[Tree, list[Tensor]]:
    """get_inputs() under this seed, its tensors copied with their strides into the judge's own memory."""
    tree = runner.make_inputs(seed, wall_s=wall_s)
    return tree, export_inputs(runner, fence, tree)


def export_inputs(runner: Runner, fence: Fence, tree: Tree) -> list[Tensor]:
    """The tensors of the last make_inputs, with their strides, in the judge's own memory."""
    return exported(fence, [leaf.spec for leaf in tree.leaves], runner.export_inputs)


def read_state(runner: Runner, fence: Fence, names: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    """The module's parameters, buffers or attributes of these names, in the judge's own memory."""
    values = exported(
        fence, list(names.values()), lambda buffers: runner.read_state(dict(zip(names, buffers, strict=True)))
    )
    return dict(zip(names, values, strict=True))


def write_state(runner: Runner, fence: Fence, values: Mapping[str, Tensor]) -> None:
    """Set the module's parameters and buffers of these names."""
    with holding(fence, list(values.values())) as buffers:
        runner.write_state(dict(zip(values, buffers, strict=True)))


@contextmanager
def holding(fence: Fence, values: Sequence[Tensor]) -> Iterator[list[Buffer]]:
    """Fresh buffers with these values, for one process alone: what it writes there, no other process sees."""
    buffers: list[Buffer] = []
    try:
        for value in values:
            buffers.append(fence.allocate(tensor_spec(value)))
            copy_values(buffers[-1].tensor, value)
        yield buffers
    finally:
        for buffer in buffers:
            buffer.close()


def exported(fence: Fence, specs: Sequence[TensorSpec], export: Callable[[Sequence[Buffer]], None]) -> list[Tensor]:
    """Tensors of these specs as a runner's `export` writes them, in the judge's own memory.

    Raises UnsupportedOutput where they span too much: what a runner says of itself must not exhaust the judge.
    """
    size = sum(map(span_bytes, specs))
    if size > _LIMIT_BYTES:
        told = f"inputs, arguments or parameters span {describe_bytes(size)}, more than {describe_bytes(_LIMIT_BYTES)}"
        raise UnsupportedOutput("needs_gpu_worker", told)
    buffers: list[Buffer] = []
    try:
        for spec in specs:
            buffers.append(fence.allocate(spec))
        export(buffers)
        return [clone_layout(buffer.tensor) for buffer in buffers]
    finally:
        for buffer in buffers:
            buffer.close()
