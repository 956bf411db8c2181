"""What is known of an expression in a kernel: the axes along which it varies, and its dtype."""

import ast
from dataclasses import dataclass

Axes = frozenset[str]

_FLOATS = ("fp8", "fp16", "bf16", "fp32", "fp64")
_SHORT = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "int1": "i1",
}
LONG_DTYPES = {short: long for long, short in _SHORT.items()}
"""Triton's short dtype names -> those below tl."""
_REDUCERS = {"sum", "max", "min", "reduce", "xor_sum"}
_SAME_AS_FIRST = {
    "exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "abs", "floor", "ceil", "erf", "sin", "cos", "sigmoid",
    "broadcast_to", "sum", "max", "min", "reshape", "trans", "fma",
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """`dtype` is Triton's short name, or None where it is not known."""

    axes: Axes = frozenset()
    dtype: str | None = None


def short_dtype(node: ast.expr) -> str | None:
    """ "fp32" for the expression tl.float32."""
    return _SHORT.get(node.attr) if isinstance(node, ast.Attribute) else None


def is_float(dtype: str | None) -> bool:
    """Whether a short dtype name is a floating one."""
    return dtype in _FLOATS


class FactBook:
    """Facts about every name seen so far."""

    def __init__(self, known: dict[str, Facts], pointers: dict[str, str]) -> None:
        self.names = dict(known)
        self.pointers = pointers

    def of(self, node: ast.expr) -> Facts:
        """Facts about one expression."""
        return Facts(self._axes(node), self._dtype(node))

    def _axes(self, node: ast.expr) -> Axes:
        if isinstance(node, ast.Name):
            return self.names.get(node.id, Facts()).axes
        if isinstance(node, ast.Call):
            function = call_name(node)
            if function in {"tl.zeros", "tl.full"}:
                return self._axes_of_shape(node.args[0])
            if function == "tl.broadcast_to":
                return self._axes_of_shape(node.args[1])
            inner = self._axes_of_all(node)
            if function.removeprefix("tl.") in _REDUCERS:
                return inner - {"r"}
            return inner
        return self._axes_of_all(node)

    def _axes_of_all(self, node: ast.AST) -> Axes:
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword)]
        parts = [self._axes(child.value if isinstance(child, ast.keyword) else child) for child in children]
        return frozenset().union(*parts)

    def _axes_of_shape(self, shape: ast.expr) -> Axes:
        blocks = {"XBLOCK": "x", "YBLOCK": "y", "ZBLOCK": "z", "R0_BLOCK": "r"}
        return frozenset(
            axis for name in ast.walk(shape) if isinstance(name, ast.Name) and (axis := blocks.get(name.id))
        )

    def _dtype(self, node: ast.expr) -> str | None:
        match node:
            case ast.Name(id=name):
                return self.names.get(name, Facts()).dtype
            case ast.Constant(value=bool()) | ast.Compare():
                return "i1"
            case ast.Constant(value=float()):
                return "literal float"
            case ast.Constant(value=int()):
                return "literal int"
            case ast.UnaryOp(operand=operand):
                return self._dtype(operand)
            case ast.Subscript(value=value):
                return self._dtype(value)
            case ast.BinOp(left=left, right=right):
                return _promote(self._dtype(left), self._dtype(right), node.op)
            case ast.Call(func=ast.Attribute(attr="to"), args=[target, *_]):
                return short_dtype(target)
            case ast.Call():
                return self._dtype_of_call(node)
        return None

    def _dtype_of_call(self, node: ast.Call) -> str | None:
        name = call_name(node)
        if name == "float":
            return "literal float"
        short = name.removeprefix("tl.").removeprefix("libdevice.")
        if name == "tl.load":
            base = pointer_name(node.args[0])
            return self.pointers.get(base)
        if name in {"tl.full", "tl.zeros"}:
            return short_dtype(node.args[-1])
        if name == "tl.where":
            return _promote(self._dtype(node.args[1]), self._dtype(node.args[2]), ast.Add())
        if name in {"tl.maximum", "tl.minimum"}:
            return _promote(self._dtype(node.args[0]), self._dtype(node.args[1]), ast.Add())
        if (
            name == "tl.reduce"
            or short in _SAME_AS_FIRST
            or (name.startswith("libdevice.") and not short.startswith("is"))
        ):
            return self._dtype(node.args[0])
        return None


def _promote(left: str | None, right: str | None, op: ast.operator) -> str | None:
    if left is None or right is None:
        return None
    if isinstance(op, ast.Div) and not (is_float(left) or is_float(right)):
        return None
    for one, other in ((left, right), (right, left)):
        if one.startswith("literal"):
            if one == "literal float" and not is_float(other) and not other.startswith("literal"):
                return "fp32"
            return other
    if left == right:
        return left
    if is_float(left) != is_float(right):
        return left if is_float(left) else right
    return None


def call_name(node: ast.expr) -> str:
    """ "tl.load" for a call of it; "" for anything else."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def dotted(name: str) -> ast.expr:
    """The expression "tl.load"."""
    return ast.parse(name, mode="eval").body


def load_in(node: ast.expr) -> ast.Call | None:
    """The load that an expression is, perhaps under a cast."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="to")):
            return load_in(inner)
        case ast.Call() if call_name(node) == "tl.load":
            return node
    return None


def keeps_dims(node: ast.Call) -> bool:
    """Whether a call keeps the dimension that it reduces."""
    return any(keyword.arg == "keep_dims" and ast.unparse(keyword.value) == "True" for keyword in node.keywords)


def without_slices(node: ast.expr) -> ast.expr:
    """The expression below its subscripts."""
    return without_slices(node.value) if isinstance(node, ast.Subscript) else node


def pointer_name(address: ast.expr) -> str:
    """The pointer argument at the left end of an address; "" where there is none."""
    while isinstance(address, ast.BinOp):
        address = address.left
    return address.id if isinstance(address, ast.Name) else ""


def assign(target: ast.expr, value: ast.expr) -> ast.Assign:
    """The statement target = value."""
    return ast.Assign([target], value, lineno=0)


def loop_over(target: ast.expr, iterator: ast.expr, body: list[ast.stmt]) -> ast.For:
    """The statement for target in iterator."""
    return ast.For(target, iterator, body, [], lineno=0)
