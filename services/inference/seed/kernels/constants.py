"""Constants in a kernel: Inductor writes typed one-element tensors, a person writes literals."""

import ast
from typing import Any, TypeGuard

from services.inference.seed.errors import NoSeedError
from services.inference.seed.kernels.facts import LONG_DTYPES, FactBook, call_name, is_float, short_dtype


def folded(left: ast.Constant, op: ast.operator, right: ast.Constant) -> ast.expr:
    """The sum, difference or product of two literals; any other operation as it is."""
    first, second = left.value, right.value
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return ast.BinOp(left, op, right)
    match op:
        case ast.Add():
            return ast.Constant(first + second)
        case ast.Sub():
            return ast.Constant(first - second)
        case ast.Mult():
            return ast.Constant(first * second)
    return ast.BinOp(left, op, right)


def negated(node: ast.Constant) -> ast.Constant:
    """The literal with the other sign."""
    return ast.Constant(-node.value) if isinstance(node.value, int | float) else node


def is_number(node: ast.expr, number: float) -> bool:
    """Whether an expression is this floating literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value == number


def is_times_minus_one(node: ast.expr) -> TypeGuard[ast.BinOp]:
    """Whether an expression is a product with -1."""
    match node:
        case ast.BinOp(op=ast.Mult(), right=ast.Constant(value=int(factor))):
            return factor == -1
    return False


def is_negative(node: ast.Constant) -> bool:
    """Whether a literal is a number below zero."""
    return isinstance(node.value, int | float) and not isinstance(node.value, bool) and node.value < 0


def is_full_scalar(node: ast.expr) -> bool:
    """tl.full([1, 1], value, dtype): Inductor's way to write a constant."""
    if call_name(node) != "tl.full" or not isinstance(node, ast.Call):
        return False
    shape = node.args[0]
    return isinstance(shape, ast.List) and all(isinstance(n, ast.Constant) and n.value == 1 for n in shape.elts)


def as_literal(node: ast.expr, other: str | None, *, any_integer: bool) -> ast.expr:
    """A typed constant as a bare literal, where the operation with a value of dtype `other` stays the same."""
    if not is_full_scalar(node) or not isinstance(node, ast.Call):
        return node
    value, dtype = node.args[1], short_dtype(node.args[2])
    same = dtype == "fp32" or dtype == other or dtype == "i1" or (dtype == "i32" and other != "i1")
    if not (same or (any_integer and not is_float(dtype))):
        return node
    if dtype == "fp32" and other == "fp64":
        return node
    try:
        number: Any = ast.literal_eval(value)
    except ValueError:
        return value  # float("-inf")
    if is_float(other) and dtype == "i32":
        number = float(number)
    return ast.Constant(number)


def dtype_expression(book: FactBook, node: ast.expr) -> ast.expr:
    """tl.float32 for "tmp3.dtype". Raises NoSeedError where the dtype is not known."""
    if isinstance(node, ast.Attribute) and node.attr == "dtype":
        short = book.of(node.value).dtype
        if short in LONG_DTYPES:
            return ast.Attribute(ast.Name("tl"), LONG_DTYPES[short])
    if short_dtype(node) is not None:
        return node
    raise NoSeedError("a kernel holds a constant of unknown dtype")
