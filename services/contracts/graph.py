"""An op's ATen graph as data, so that proposers rewrite it without ever running the user's source."""

from enum import StrEnum

from pydantic import JsonValue

from services.contracts.base import Message
from services.contracts.tensors import TensorSpec


class InputKind(StrEnum):
    """Where a graph input comes from."""

    INPUT = "input"
    PARAMETER = "parameter"
    BUFFER = "buffer"


class GraphInput(Message):
    """One placeholder: `source` is the position in get_inputs() ("1", nested "1['mask']") or the dotted state name."""

    name: str
    kind: InputKind
    source: str
    spec: TensorSpec


class GraphNode(Message):
    """One ATen call.

    `target` is the overload's full name ("aten.add.Tensor"). In `args`/`kwargs` a JSON object marks what JSON lacks:
    {"node": name}, {"item": [name, index]}, {"dtype": "float32"}, {"device": "cuda"}, {"layout": "strided"},
    {"memory_format": "channels_last"}, {"float": "inf"}, {"constant": name}.
    """

    name: str
    target: str
    args: list[JsonValue]
    kwargs: dict[str, JsonValue] = {}


class ModuleSpec(Message):
    """One stock torch.nn leaf module with state: its constructor call rebuilt from `extra_repr`."""

    path: str
    class_name: str
    """Qualified below torch.nn, e.g. "Linear"."""
    arguments: str
    """As in source, e.g. "in_features=8, out_features=4, bias=True"."""


class AtenGraph(Message):
    """The op's forward in eval mode as a flat list of ATen calls, traced for the target device.

    `output` is the nested structure of the result: {"node": name}, {"item": [name, index]}, {"value": scalar},
    {"list": [...]}, {"tuple": [...]}, {"dict": {key: ...}}. `constants` holds small tensors created by the source,
    as nested lists with their spec.
    """

    inputs: list[GraphInput]
    nodes: list[GraphNode]
    output: JsonValue
    constants: dict[str, JsonValue] = {}
    modules: list[ModuleSpec] = []
    init_parameters: str = ""
    """The parameter list of Model.__init__ without self, as in source, e.g. "dim, eps=1e-6"."""
    forward_parameters: list[str] = []
    """Names of forward's parameters, one for each input."""
    init_values: dict[str, JsonValue] = {}
    """What Model.__init__ was given, defaults included, as far as JSON carries it."""
    scalars: dict[str, JsonValue] = {}
    """Inputs that are not tensors, by source; the graph is specialised for them."""
    ties: dict[str, str] = {}
    """Second names of shared parameters and buffers, each with the first one."""
