"""Masks of loads, stores and reductions."""

import ast

from services.inference.seed.kernels.facts import load_in

JOINT_MASKS = {frozenset(("r0_mask", "xmask")): "rxmask", frozenset(("ymask", "xmask")): "yxmask"}
"""One name for the mask over both axes."""
_OVER_ROW = {"xmask": ast.Constant(True), "rxmask": ast.Name("r0_mask")}


def mask_keyword(mask: ast.expr) -> list[ast.keyword]:
    """mask=…, or nothing where every lane takes part."""
    nothing = isinstance(mask, ast.Constant) and mask.value in (None, True)
    return [] if nothing else [ast.keyword("mask", mask)]


def is_true(node: ast.expr) -> bool:
    """Whether a condition always holds."""
    return isinstance(node, ast.Constant) and node.value is True


def within_row(mask: ast.expr) -> ast.expr:
    """What a reduction along a row needs of its mask: rows do not mix, and one beyond the last is never stored."""
    return _OVER_ROW.get(mask.id, mask) if isinstance(mask, ast.Name) else mask


def zero_outside(value: ast.expr) -> set[str]:
    """Masks of a load that gives 0 wherever one of them does not hold."""
    load = load_in(value)
    given = {keyword.arg: keyword.value for keyword in load.keywords} if load else {}
    mask, other = given.get("mask"), given.get("other")
    if mask is None or not (isinstance(other, ast.Constant) and other.value == 0):
        return set()
    masks = set(_conjuncts(mask))
    return masks.union(*(parts for parts, joint in JOINT_MASKS.items() if joint in masks))


def _conjuncts(mask: ast.expr) -> list[str]:
    match mask:
        case ast.Name(id=name):
            return [name]
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return [*_conjuncts(left), *_conjuncts(right)]
    return []
