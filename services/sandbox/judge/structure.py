"""Structure, shapes and dtypes of two answers."""

import math

from pydantic import JsonValue

from services.contracts import Verdict
from services.sandbox.replies import Tree

_SCALAR_TOLERANCE = 1e-4


def layout_problem(expected: Tree, got: Tree) -> tuple[Verdict, str] | None:
    """The first difference in structure, shape or dtype with its verdict; None where the answers can be compared."""
    problem = _structure_problem(expected.structure, got.structure, "output")
    if problem:
        return Verdict.WRONG_STRUCTURE, problem
    for path, wanted, offered in zip(expected.paths(), expected.leaves, got.leaves, strict=True):
        if wanted.spec.shape != offered.spec.shape:
            return Verdict.WRONG_SHAPE, f"output{path} has shape {offered.spec.shape}, expected {wanted.spec.shape}"
        if wanted.spec.dtype != offered.spec.dtype:
            return Verdict.WRONG_DTYPE, f"output{path} is {offered.spec.dtype}, expected {wanted.spec.dtype}"
    return None


def _structure_problem(expected: JsonValue, got: JsonValue, path: str) -> str:
    (wanted_tag, wanted), (got_tag, found) = _node(expected), _node(got)
    if wanted_tag != got_tag:
        return f"{path} is {_name(got_tag, found)}, expected {_name(wanted_tag, wanted)}"
    if isinstance(wanted, dict) and isinstance(found, dict):
        if list(wanted) != list(found):
            return f"{path} has keys {list(found)}, expected {list(wanted)}"
        return _first_problem([(wanted[key], found[key], f"{path}[{key!r}]") for key in wanted])
    if isinstance(wanted, list) and isinstance(found, list) and wanted_tag in ("list", "tuple"):
        if len(wanted) != len(found):
            return f"{path} has {len(found)} items, expected {len(wanted)}"
        return _first_problem([(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(wanted, found, strict=True))])
    if wanted_tag == "tensor" or _same_scalar(wanted, found):
        return ""
    return f"{path} is {found!r}, expected {wanted!r}"


def _first_problem(pairs: list[tuple[JsonValue, JsonValue, str]]) -> str:
    return next((problem for a, b, path in pairs if (problem := _structure_problem(a, b, path))), "")


def _node(node: JsonValue) -> tuple[str, JsonValue]:
    if isinstance(node, dict) and len(node) == 1:
        return next(iter(node.items()))
    raise ValueError(f"not a tree node: {str(node)[:80]}")


def _name(tag: str, body: JsonValue) -> str:
    return f"the value {body!r}" if tag == "value" else f"a {tag}"


def _same_scalar(wanted: JsonValue, found: JsonValue) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=_SCALAR_TOLERANCE)
    return type(wanted) is type(found) and wanted == found
