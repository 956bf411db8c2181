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
Name = Annotated[str, AfterValidator(lambda text: shown(text, 200))]
"""Cut rather than refused: it is only shown."""
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Small = Annotated[int, Field(ge=0, le=1 << 20)]
Grid = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=3)]
Constants = Annotated[dict[Name, Name], Field(max_length=200)]


def shown(text: str, limit: int) -> str:
    """Text of a runner's, cut and as databases take it."""
    return storable(text[:limit])


def storable(text: str) -> str:
    """Without the NULs and lone surrogates that PostgreSQL refuses."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()


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

    name: Annotated[str, Field(max_length=1000)]
    kind: StateKind
    spec: Spec
    tied_to: str = ""
    """Name of the earlier entry with which this one shares its memory."""


class Loaded(Message):
    """A module that was imported and built, in eval mode."""

    init: Tree
    """Arguments with which the class was built, a {"tuple": ...}."""
    state: Annotated[list[StateEntry], Field(max_length=20000)]
    forward_parameters: Annotated[list[Name], Field(max_length=1000)]
    """Names of forward's parameters."""


class AtenCall(Message):
    """One ATen call outside Triton. Views cost 0 bytes. Multiply and add count as two FLOPs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name
    """The overload's full name, e.g. "aten.add.Tensor"."""
    bytes_read: Count
    bytes_written: Count
    flops: Count = 0
    matmul: bool = False
    """Matrix product or convolution: runs on tensor cores where the dtype allows."""
    dtype: Name = ""
    """Of the first floating-point input."""
    rows: Count | None = None
    """Rows, where eager's CUDA kernel gives each row one block; None where its grid follows the elements."""


class Launch(Message):
    """One launch of a Triton kernel. Byte and FLOP counts are None unless they were asked for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: Name
    line: int | None = None
    grid: Grid
    constants: Constants = {}
    bytes_read: Count | None = None
    """Distinct bytes of tensor arguments."""
    bytes_written: Count | None = None
    bytes_requested: Count | None = None
    """All lanes' loads, stores and atomics."""
    dot_flops: Count | None = None
    dot_dtype: Name = ""
    """How tl.dot multiplied: "tf32", "tf32x3", "float32" (ieee), "bfloat16", "float16", "float64", ..."""
    flops: Count | None = None
    """Element-wise operations, one each."""
    failed: Annotated[str, AfterValidator(lambda text: shown(text, 2000))] = ""
    """What the kernel raised, also where the code around it went on."""


class Provenance(Message):
    """Where the values of a counted forward came from."""

    unseen: list[Name] = Field([], max_length=10)
    """Tensors that a call or a launch read, and that nothing which was counted had written."""
    unread_inputs: list[int] = Field([], max_length=4096)
    """Input leaves, scalars and the like aside, that nothing which was counted has read."""
    from_kernels: bool
    """Whether any output depends on what a generated kernel wrote."""


class Forward(Message):
    """One forward. Its outputs stay alive in the runner until the next forward."""

    outputs: Tree
    launches: list[Launch] = Field([], max_length=20000)
    aten: list[AtenCall] | None = Field(None, max_length=100000)
    """Calls outside Triton; None unless they were asked for."""
    provenance: Provenance | None = None
    """None unless counts were asked for."""
    seconds: float = Field(ge=0)
    """By the runner's own clock: a hint, never evidence."""


class KernelCompile(Message):
    """One kernel compiled for the target GPU."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: Name
    line: int | None = None
    launches: Count
    grid: Grid
    """Of the first launch."""
    registers: Small
    spills: Small
    shared_bytes: Count
    num_warps: Small
    num_stages: Small
    features: list[Name] = Field([], max_length=50)
    configurations: Small = 1
    """Autotune configurations that compiled."""
    failed_configurations: list[Name] = Field([], max_length=200)
    """Those that did not, and why, while another works."""
    constants: Constants = {}
    seconds: float = 0.0
