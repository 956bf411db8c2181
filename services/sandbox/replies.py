# ruff: noqa: RUF012 (pydantic copies mutable defaults)
"""What a runner answers, as validated on the judge's side. All of it is untrusted: user code sits beside the runner."""

from enum import StrEnum
from typing import Annotated, Self

import torch
from pydantic import AfterValidator, ConfigDict, Field, JsonValue, model_validator

from services.contracts import TensorSpec
from services.contracts.base import Message


def _plausible(spec: TensorSpec) -> TensorSpec:
    if len(spec.shape) != len(spec.stride) or min([0, *spec.shape, *spec.stride]) < 0 or spec.numel > _MOST_ELEMENTS:
        raise ValueError(f"no tensor has shape {spec.shape[:9]} with stride {spec.stride[:9]}")
    if not isinstance(getattr(torch, spec.dtype, None), torch.dtype):
        raise ValueError(f"torch has no dtype {spec.dtype[:40]!r}")  # noqa: TRY004 (a wrong name, not a wrong type)
    return spec


_MOST_ELEMENTS = 1 << 42
Spec = Annotated[TensorSpec, AfterValidator(_plausible)]
Name = Annotated[str, AfterValidator(lambda text: text[:200])]
"""Cut rather than refused: it is only shown."""


class Leaf(Message):
    """One tensor of a tree."""

    spec: Spec
    requires_grad: bool = False


class Tree(Message):
    """Nested values with their tensors pulled out.

    `structure` is {"tensor": i} for leaf i, {"value": scalar}, {"float": "inf" | "-inf" | "nan"},
    {"complex": [re, im]}, {"dtype": "float32"}, {"device": "cpu"}, {"list": [...]}, {"tuple": [...]}
    or {"dict": {key: ...}}.
    """

    structure: JsonValue
    leaves: list[Leaf] = Field([], max_length=4096)

    @model_validator(mode="after")
    def _names_each_leaf_once(self) -> Self:
        if leaf_indices(self.structure) != list(range(len(self.leaves))):
            raise ValueError("a tree names its tensors 0, 1, 2, ... in order")
        return self

    def paths(self) -> list[str]:
        """Where each tensor leaf is, as an index expression: "" for a bare tensor, "[0]['values']" in nested ones."""
        return [path for path, _ in sorted(_paths(self.structure, ""), key=lambda pair: pair[1])]


def leaf_indices(structure: JsonValue) -> list[int]:
    """Indices of the tensors in the order in which the structure names them. ValueError on an unknown form."""
    return [index for _, index in _paths(structure, "")]


def _paths(node: JsonValue, path: str) -> list[tuple[str, int]]:
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError(f"not a tree node: {str(node)[:80]}")
    ((tag, body),) = node.items()
    if tag == "tensor" and isinstance(body, int) and not isinstance(body, bool):
        return [(path, body)]
    if tag in {"list", "tuple"} and isinstance(body, list):
        return [found for i, item in enumerate(body) for found in _paths(item, f"{path}[{i}]")]
    if tag == "dict" and isinstance(body, dict):
        return [found for key, item in body.items() for found in _paths(item, f"{path}[{key!r}]")]
    if tag in {"value", "float", "complex", "dtype", "device"}:
        return []
    raise ValueError(f"not a tree node: {tag}")


class StateKind(StrEnum):
    """What kind of state a module's tensor is. An attribute is a plain tensor: neither parameter nor buffer."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    ATTRIBUTE = "attribute"


class StateEntry(Message):
    """One tensor of the module's state by its dotted name, in registration order."""

    name: str
    kind: StateKind
    spec: Spec
    tied_to: str = ""
    """Name of the earlier entry with which this one shares its memory."""


class Loaded(Message):
    """A module that was imported and built, in eval mode."""

    init: Tree
    """Arguments with which the class was built, a {"tuple": ...}."""
    state: list[StateEntry]
    forward_parameters: list[str]
    """Names of forward's parameters."""
    source_line: int | None = None
    """Line of the class statement."""


class AtenCall(Message):
    """One ATen call outside Triton. Views cost 0 bytes. Multiply and add count as two FLOPs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The overload's full name, e.g. "aten.add.Tensor"."""
    bytes_read: int = Field(ge=0)
    bytes_written: int = Field(ge=0)
    flops: int = Field(0, ge=0)
    matmul: bool = False
    """Matrix product or convolution: runs on tensor cores where the dtype allows."""
    dtype: str = ""
    """Of the first floating-point input."""
    rows: int | None = Field(None, ge=0)
    """Rows, where eager's CUDA kernel gives each row one block; None where its grid follows the elements."""


class Launch(Message):
    """One launch of a Triton kernel. Byte and FLOP counts are None unless they were asked for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: Name
    line: int | None = None
    grid: list[int]
    constants: dict[Name, Name] = {}
    bytes_read: int | None = None
    """Distinct bytes of tensor arguments."""
    bytes_written: int | None = None
    bytes_requested: int | None = None
    """All lanes' loads, stores and atomics."""
    dot_flops: int | None = None
    dot_dtype: str = ""
    """How tl.dot multiplied: "tf32", "tf32x3", "float32" (ieee), "bfloat16", "float16", "float64", ..."""
    flops: int | None = None
    """Element-wise operations, one each."""
    failed: str = ""
    """What the kernel raised, also where the code around it went on."""


class Forward(Message):
    """One forward. Its outputs stay alive in the runner until the next forward."""

    outputs: Tree
    launches: list[Launch] = Field([], max_length=20000)
    aten: list[AtenCall] | None = Field(None, max_length=100000)
    """Calls outside Triton; None unless they were asked for."""
    seconds: float = Field(ge=0)
    """By the runner's own clock: a hint, never evidence."""


class KernelCompile(Message):
    """One kernel compiled for the target GPU."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: Name
    line: int | None = None
    registers: int = Field(ge=0)
    spills: int = Field(ge=0)
    shared_bytes: int = Field(ge=0)
    num_warps: int
    num_stages: int
    features: list[Name] = Field([], max_length=50)
    configurations: int = 1
    """Autotune configurations that compiled."""
    failed_configurations: list[Name] = Field([], max_length=200)
    """Those that did not, and why, while another works."""
    constants: dict[Name, Name] = {}
    seconds: float = 0.0
