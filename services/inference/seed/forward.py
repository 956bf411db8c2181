"""Writes ModelNew.forward from the steps of Inductor's program."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from services.contracts import AtenGraph, GraphInput, InputKind, TensorSpec
from services.inference.seed.errors import NoSeedError
from services.inference.seed.graph import constant_spec
from services.inference.seed.kernels.naming import Namer
from services.inference.seed.program import Allocation, LibraryCall, Program, Rename, literal
from services.inference.seed.state import state_expression
from services.inference.seed.views import is_contiguous, view_text

_TORCH_CALLS = {"mm", "bmm", "addmm", "baddbmm"}
_DEFAULTS = {"alpha": 1, "beta": 1}
WIDTH = 120
MODULE_NAMES = {"torch", "nn", "F", "triton", "tl", "libdevice", "check_input"}
"""Names at the top of the file that forward uses."""


class Values:
    """Source text and layout of every tensor that the program names."""

    def __init__(self, graph: AtenGraph, program: Program, parameters: Sequence[str]) -> None:
        placeholders: list[GraphInput | str] = [*graph.inputs, *graph.constants]
        if len(placeholders) != len(program.arguments):
            raise NoSeedError("Inductor's program takes other arguments than the graph")
        self.device = "device" if "device" not in parameters else "own_device"
        """The local name of the device that the inputs are on."""
        self.namer = Namer({*parameters, *MODULE_NAMES, "self", self.device})
        self.text: dict[str, str] = {}
        self.words: dict[str, str] = {}
        """A plain name for each tensor, for a kernel's argument."""
        self.specs: dict[str, TensorSpec] = {}
        self.owned: set[str] = set()
        """Tensors made here, which start their storage."""
        for original, item in zip(program.arguments, placeholders, strict=True):
            if isinstance(item, GraphInput):
                self.text[original] = input_text(item, parameters)
                self.words[original] = _word(item, parameters)
                self.specs[original] = item.spec
            else:
                self.words[original] = re.sub(r"\W", "_", item).rpartition(".")[2]
                self.text[original] = f"{state_expression(constant_attribute(item))}.to({self.device})"
                self.specs[original] = constant_spec(graph.constants[item])

    def define(self, original: str, wish: str, spec: TensorSpec | None) -> str:
        """A new local name."""
        name = self.namer.fresh(wish)
        self.text[original] = self.words[original] = name
        self.owned.add(original)
        if spec is not None:
            self.specs[original] = spec
        return name

    def alias(self, step: Rename) -> None:
        """`name` stands for an expression; tuple items and plain names only get a text."""
        self.text[step.name] = self.expression(step.value)
        base = base_name(step.value)
        self.words[step.name] = self.words.get(base, "value")
        if isinstance(step.value, ast.Name) and base in self.specs:
            self.specs[step.name] = self.specs[base]
        if base in self.owned:
            self.owned.add(step.name)
        if view := _view_of(step.value):
            self.specs[step.name] = view[0]

    def expression(self, node: ast.expr) -> str:
        """A tensor expression of the program in the new names."""
        match node:
            case ast.Name(id=name) if name in self.text:
                return self.text[name]
            case ast.Subscript(value=value, slice=ast.Constant(value=int(index))):
                return f"{self.expression(value)}[{index}]"
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[ast.Name() | ast.Subscript() as base, *_]):
                return self._view(node, base)
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[inner, *_]) if literal(node.args[3]) == 0:
                return self._view(node, inner)
            case ast.Call(func=ast.Name(id="device")):
                return self.device
            case ast.List(elts=items):
                return f"[{', '.join(self.expression(item) for item in items)}]"
            case ast.Tuple(elts=items):
                return f"({', '.join(self.expression(item) for item in items)}{',' if len(items) == 1 else ''})"
            case ast.Attribute() if ast.unparse(node).startswith("torch."):
                return ast.unparse(node)
        return repr(literal(node)).replace("'", '"')

    def _view(self, node: ast.Call, base: ast.expr) -> str:
        name = base_name(base)
        view, offset = _view_of(node) or (None, 0)
        if view is None:
            raise NoSeedError("a view without a readable form")
        text = view_text(self.expression(base), self.specs.get(name), view, offset, own_storage=name in self.owned)
        return text

    def argument(self, node: ast.expr) -> str:
        """A kernel's argument: only where it starts matters, so that a view from the start is its base."""
        view = _view_of(node)
        if view is not None and view[1] == 0 and isinstance(node, ast.Call) and isinstance(node.args[0], ast.Name):
            base = self.specs.get(node.args[0].id)
            if base is not None and base.numel == view[0].numel and is_contiguous(base):
                return self.argument(node.args[0])
        return self.expression(node)

    def word(self, node: ast.expr) -> str:
        """A plain name for the tensor of an expression."""
        return self.words.get(base_name(node), "value")


def base_name(node: ast.expr) -> str:
    """The program's name of the tensor that an expression is a view of."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=value):
            return base_name(value)
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[value, *_]):
            return base_name(value)
    return ""


def _view_of(node: ast.expr) -> tuple[TensorSpec, int] | None:
    match node:
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[_, shape, stride, offset]):
            spec = TensorSpec(shape=list(literal(shape)), stride=list(literal(stride)), dtype="")
            return spec, literal(offset)
    return None


def constant_attribute(name: str) -> str:
    """Attribute that holds one of the graph's constants."""
    return re.sub(r"\W", "_", name)


def input_text(item: GraphInput, parameters: Sequence[str]) -> str:
    """Source text of an input, parameter or buffer."""
    if item.kind is not InputKind.INPUT:
        return state_expression(item.source)
    position, bracket, rest = item.source.partition("[")
    index = bracket + rest
    return f"{parameters[int(position)]}{index}".replace("'", '"')


def _word(item: GraphInput, parameters: Sequence[str]) -> str:
    if item.kind is InputKind.INPUT:
        text = input_text(item, parameters)
        return re.sub(r"\W+", "_", text).strip("_")
    last = item.source.split(".")
    word = last[-1]
    return word if not word[-1].isdigit() or len(last) < 2 else f"{last[-2]}_{word}"


def allocation_text(step: Allocation, device: str) -> str:
    """torch.empty for a dense buffer, else torch.empty_strided."""
    spec = TensorSpec(shape=list(step.shape), stride=list(step.stride), dtype="")
    if is_contiguous(spec):
        return f"torch.empty({tuple(step.shape)}, device={device}, dtype={step.dtype})"
    return f"torch.empty_strided({tuple(step.shape)}, {tuple(step.stride)}, device={device}, dtype={step.dtype})"


def library_text(step: LibraryCall, values: Values) -> tuple[str, str]:
    """The call as plain torch, and a name for its result."""
    name = ast.unparse(step.call.func)
    arguments = [values.expression(argument) for argument in step.call.args]
    keywords = {str(keyword.arg): keyword.value for keyword in step.call.keywords if not _is_default(keyword)}
    if name == "extern_kernels.convolution":
        return _convolution(arguments, keywords, values), "convolved"
    if name == "torch.ops.warpsmith.attention.default":
        return _attention(arguments), "attended"
    named = [f"{key}={values.expression(value)}" for key, value in keywords.items()]
    inside = ", ".join(arguments + named)
    if (match := re.fullmatch(r"extern_kernels\.(\w+)", name)) and match.group(1) in _TORCH_CALLS:
        return f"torch.{match.group(1)}({inside})", "projected"
    if match := re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(\w+)", name):
        operator, overload = match.groups()
        return f"torch.ops.aten.{operator}.{overload}({inside})", f"{operator.strip('_')}_out"
    raise NoSeedError(f"the library call {name} has no plain form")


def _is_default(keyword: ast.keyword) -> bool:
    return keyword.arg in _DEFAULTS and ast.unparse(keyword.value) == str(_DEFAULTS[keyword.arg])


def _convolution(arguments: list[str], keywords: dict[str, ast.expr], values: Values) -> str:
    options: dict[str, Any] = {key: literal(value) for key, value in keywords.items() if key != "bias"}
    rank = len(options["stride"])
    bias = values.expression(keywords["bias"]) if "bias" in keywords else "None"
    transposed = options.pop("transposed")
    output_padding = options.pop("output_padding")
    neutral = {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank, "groups": 1}
    parts = arguments + ([f"bias={bias}"] if bias != "None" else [])
    parts += [f"{key}={_short(value)}" for key, value in options.items() if value != neutral.get(key)]
    if transposed and any(output_padding):
        parts.append(f"output_padding={_short(output_padding)}")
    return f"F.conv{'_transpose' if transposed else ''}{rank}d({', '.join(parts)})"


def _short(value: Any) -> str:
    return str(value[0]) if isinstance(value, tuple) and len(set(value)) == 1 else str(value)


def _attention(arguments: list[str]) -> str:
    query, key, value, mask, causal, scale, grouped = arguments
    parts = [query, key, value]
    parts += [f"attn_mask={mask}"] if mask != "None" else []
    parts += ["is_causal=True"] if causal == "True" else []
    parts += [f"scale={scale}"] if scale != "None" else []
    parts += ["enable_gqa=True"] if grouped == "True" else []
    return f"F.scaled_dot_product_attention({', '.join(parts)}).contiguous()"


def wrapped(head: str, function: str, arguments: list[str], tail: str = "", depth: int = 2) -> list[str]:
    """A call on one line, or one argument to a line where it is too long."""
    indent = "    " * depth
    line = f"{indent}{head}{function}({', '.join(arguments)}){tail}"
    if len(line) <= WIDTH:
        return [line]
    joined = f"{indent}    {', '.join(arguments)}"
    if len(joined) <= WIDTH:
        return [f"{indent}{head}{function}(", joined, f"{indent}){tail}"]
    return [f"{indent}{head}{function}(", *(f"{indent}    {argument}," for argument in arguments), f"{indent}){tail}"]


def launch_lines(kernel: str, grid: str, arguments: list[str]) -> list[str]:
    """kernel[grid](arguments), the grid on a line of its own where it is too long."""
    opening = f"{' ' * 8}{kernel}[{grid}]("
    if len(opening) <= WIDTH:
        return wrapped("", f"{kernel}[{grid}]", arguments)
    _, *rest = wrapped("", "]" + " " * WIDTH, arguments)
    return [f"{' ' * 8}{kernel}[", f"{' ' * 12}{grid}", f"{' ' * 8}](", *rest]


def python_text(value: Any) -> str:
    """A literal of the graph in source form."""
    if isinstance(value, dict) and set(value) == {"float"}:
        return f'float("{value["float"]}")'
    if isinstance(value, list):
        return f"[{', '.join(python_text(item) for item in value)}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return repr(value)


def call_parts(text: str) -> tuple[str, list[str], str]:
    """Function, arguments and what follows, of a call in source form."""
    tree = ast.parse(text, mode="eval").body
    tail = ""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) and isinstance(tree.func.value, ast.Call):
        tail = f".{tree.func.attr}()"
        tree = tree.func.value
    if not isinstance(tree, ast.Call):
        return text, [], ""
    arguments = [ast.unparse(argument).replace("'", '"') for argument in tree.args]
    arguments += [f"{keyword.arg}={ast.unparse(keyword.value)}".replace("'", '"') for keyword in tree.keywords]
    return ast.unparse(tree.func), arguments, tail
