"""Names for the values in a kernel, by what computes them."""

import ast
import keyword

from services.inference.seed.kernels.facts import call_name

_RESERVED = {"tl", "triton", "libdevice", "torch", "start", "mask", "offsets", "row", "col", "row_mask", "col_mask"}
_CALLS = {
    "tl.exp": "exponential",
    "tl.exp2": "exponential",
    "tl.log": "logarithm",
    "tl.sqrt_rn": "root",
    "tl.rsqrt": "reciprocal_root",
    "tl.erf": "erf",
    "tl.abs": "magnitude",
    "tl.floor": "floored",
    "tl.ceil": "ceiled",
    "tl.sin": "sine",
    "tl.cos": "cosine",
    "tl.sum": "row_sum",
    "tl.max": "row_max",
    "tl.min": "row_min",
    "tl.maximum": "clamped",
    "tl.minimum": "clamped",
    "tl.where": "selected",
    "tl.zeros": "zeros",
    "tl.full": "filled",
    "tl.sigmoid": "gate",
    "tl.associative_scan": "scanned",
    "libdevice.tanh": "tanh",
    "libdevice.erf": "erf",
    "libdevice.exp": "exponential",
    "libdevice.rsqrt": "reciprocal_root",
    "libdevice.pow": "power",
    "libdevice.log1p": "log1p",
    "libdevice.expm1": "expm1",
}
_TUPLES = {
    "online_softmax_finish": ("row_max", "row_sum"),
    "online_softmax_step": ("next_max", "next_sum"),
    "online_softmax_merge": ("next_max", "next_sum"),
    "welford_finish": ("mean", "m2", "count"),
    "welford_step": ("next_mean", "next_m2", "next_count"),
    "largest_with_index": ("row_max", "row_argmax"),
    "smallest_with_index": ("row_min", "row_argmin"),
    "larger_with_index": ("next_max", "next_index"),
    "smaller_with_index": ("next_min", "next_index"),
}
_CARRIED = {"_max": "running_max", "_sum": "running_sum", "_mean": "running_mean", "_m2": "running_m2"}
_CARRIED |= {"_weight": "running_count", "_index": "running_index"}


class Namer:
    """Gives out names, each once."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken) | _RESERVED

    def fresh(self, wish: str) -> str:
        """The wished name, with a number where it is taken."""
        wish = wish if wish.isidentifier() and not keyword.iskeyword(wish) else f"value_{wish}".rstrip("_")
        name, number = wish, 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name


def tuple_names(function: str, count: int) -> tuple[str, ...]:
    """Names of the results of a device function."""
    return _TUPLES.get(function, tuple(f"part_{i}" for i in range(count)))[:count]


def carried_name(original: str) -> str:
    """Name of a value that a loop carries, by Inductor's own suffix."""
    return next((name for suffix, name in _CARRIED.items() if original.endswith(suffix)), "partial")


def value_name(expression: ast.expr) -> str:
    """A word for what an expression computes; its operands already have their final names."""
    match expression:
        case ast.Subscript(value=value):
            return value_name(value)
        case ast.Call(func=ast.Attribute(value=value, attr="to")):
            return value_name(value) if isinstance(value, ast.Subscript | ast.Call) else f"{_stem(value)}_cast"
        case ast.Call():
            return _call_word(expression)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            if _mentions(right, "mean"):
                return "centered"
            return "shifted" if _mentions(right, "max") else "difference"
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            if ast.unparse(left) == ast.unparse(right):
                return "squared"
            if _mentions(left, "rstd") or _mentions(right, "rstd"):
                return "normalized"
            return "scaled" if isinstance(right, ast.Constant) else "product"
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant() | ast.Name(id="n_cols")):
            squares = _has_square(left)
            if _mentions(left, "m2") or _mentions(left, "deviation_sum") or (squares and _mentions(left, "centered")):
                return "variance"
            if squares:
                return "mean_square"
            return "mean" if "sum" in ast.unparse(left) else "ratio"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            inverse_root = isinstance(left, ast.Constant) and "sqrt" in ast.unparse(right)
            return "rstd" if inverse_root else "ratio"
        case ast.BinOp(op=ast.Add(), right=right):
            return "biased" if _mentions(right, "bias") else "summed"
        case ast.BinOp(op=ast.FloorDiv()):
            return "outer"
        case ast.BinOp(op=ast.Mod()):
            return "inner"
        case ast.BinOp(op=ast.BitAnd()):
            return "both"
        case ast.BinOp(op=ast.BitOr()):
            return "either_one"
        case ast.Compare(ops=[operator]):
            names = {"Lt": "is_less", "Gt": "is_greater", "Eq": "is_equal", "LtE": "at_most", "GtE": "at_least"}
            return names.get(type(operator).__name__, "differs")
        case ast.UnaryOp(operand=operand):
            return f"negated_{_stem(operand)}"
    return "value"


def _call_word(call: ast.Call) -> str:
    name = call_name(call)
    argument = call.args[0] if call.args else None
    if name in {"tl.rsqrt", "libdevice.rsqrt"}:
        return "rstd"
    if name == "tl.sum" and "== BLOCK_COLS - 1" in ast.unparse(call):
        return "last"
    if name == "tl.sum" and argument is not None and _has_square(argument):
        return "deviation_sum" if _mentions(argument, "centered") else "square_sum"
    if name == "tl.reduce":
        combine = ast.unparse(call.args[2])
        return {"nan_maximum": "row_max", "nan_minimum": "row_min", "multiply": "row_product"}.get(combine, "row_any")
    if name == "tl.where" and _has_square(call):
        return "squared"
    return _CALLS.get(name, name.rpartition(".")[2] or "value")


def _has_square(node: ast.AST) -> bool:
    for part in ast.walk(node):
        product = isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult)
        if product and ast.unparse(part.left) == ast.unparse(part.right):  # type: ignore[attr-defined]
            return True
        if isinstance(part, ast.Name) and "square" in part.id:
            return True
    return False


def _mentions(node: ast.AST, word: str) -> bool:
    return any(isinstance(part, ast.Name) and word in part.id for part in ast.walk(node))


def _stem(node: ast.expr) -> str:
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id not in {"tl", "libdevice"}]
    return names[0] if names else "value"
