"""Addresses in the order in which a person writes them."""

import ast

from services.inference.seed.kernels.constants import is_negative, negated


def tidy_address(address: ast.expr) -> ast.expr:
    """Pointer first, then the terms with the largest factor first, constants last."""
    terms = [(sign, _tidy_inside(term)) for sign, term in _terms(address, 1)]
    if not terms or not isinstance(terms[0][1], ast.Name):
        return address
    pointer, rest = terms[0][1], terms[1:]
    rest.sort(key=lambda term: -_weight(term[1]))
    built: ast.expr = pointer
    for sign, term in rest:
        if isinstance(term, ast.Constant) and term.value == 0:
            continue
        negative = sign < 0
        if isinstance(term, ast.Constant) and is_negative(term):
            negative, term = not negative, negated(term)
        built = ast.BinOp(built, ast.Sub() if negative else ast.Add(), term)
    return built


def _tidy_inside(term: ast.expr) -> ast.expr:
    """The same for a sum that is divided."""
    if not isinstance(term, ast.BinOp) or not isinstance(term.op, ast.FloorDiv | ast.Mod | ast.Mult):
        return term
    left = _tidy_inside(term.left)
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        first, second = left.left, left.right
        if _weight(second) > _weight(first):
            left = ast.BinOp(second, ast.Add(), first)
    return ast.BinOp(left, term.op, term.right)


def _terms(node: ast.expr, sign: int) -> list[tuple[int, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right_sign = sign if isinstance(node.op, ast.Add) else -sign
        return _terms(node.left, sign) + _terms(node.right, right_sign)
    return [(sign, node)]


def _weight(term: ast.expr) -> int:
    match term:
        case ast.BinOp(op=ast.Mult(), right=ast.Constant(value=int(factor))):
            return factor
        case ast.Constant():
            return -1
    return 1
