"""Names for an op's results."""

import ast
import re
from typing import Any

from services.inference.seed.graph import tensor_leaves


def output_names(output: Any, source: str) -> list[str]:
    """Names for the tensors of the result: dict keys, the names that the source returns, else out, out_0, …"""
    leaves = tensor_leaves(output)
    if len(leaves) == 1:
        return ["out"]
    ((tag, body),) = output.items()
    returned = _returned_names(source)
    if tag in {"tuple", "list"} and len(returned) == len(body):
        return [name for word, item in zip(returned, body, strict=True) for name in _numbered(word, item)]
    if tag == "dict":
        return [name for key, item in body.items() for name in _numbered(re.sub(r"\W", "_", key), item)]
    return [f"out_{i}" for i in range(len(leaves))]


def _numbered(word: str, item: Any) -> list[str]:
    count = len(tensor_leaves(item))
    return [word] if count == 1 else [f"{word}_{i}" for i in range(count)]


def _returned_names(source: str) -> list[str]:
    """Names in the one return statement of Model.forward."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    methods = [node for model in models for node in model.body if isinstance(node, ast.FunctionDef)]
    forwards = [method for method in methods if method.name == "forward"]
    returns = [node for forward in forwards for node in ast.walk(forward) if isinstance(node, ast.Return)]
    if len(returns) != 1 or not isinstance(returns[0].value, ast.Tuple):
        return []
    items = returns[0].value.elts
    names = [item.id for item in items if isinstance(item, ast.Name)]
    return names if len(names) == len(items) else []
