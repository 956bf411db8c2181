"""Middle passes over a normalised kernel: equal expressions are computed once, unused ones not at all."""

import ast
from collections import Counter
from collections.abc import Iterator

from services.inference.seed.kernels.facts import load_in, loop_over


def carried_names(body: list[ast.stmt]) -> set[str]:
    """Names that a loop changes: assigned in a block and in a loop inside it."""
    carried: set[str] = set()
    outer = set(_assigned(body))
    for statement in body:
        if isinstance(statement, ast.For):
            carried |= outer & set(_assigned_deep(statement.body))
            carried |= carried_names(statement.body)
    return carried


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield from targets(statement)


def _assigned_deep(body: list[ast.stmt]) -> Iterator[str]:
    yield from _assigned(body)
    for statement in body:
        if isinstance(statement, ast.For):
            yield from _assigned_deep(statement.body)


def targets(statement: ast.Assign) -> list[str]:
    """Names that an assignment sets."""
    return [node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]


def names_in(node: ast.AST) -> list[str]:
    """Every name that is read, with repetitions."""
    return [child.id for child in ast.walk(node) if isinstance(child, ast.Name)]


def reads(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is read."""
    count: Counter[str] = Counter()
    for statement in body:
        match statement:
            case ast.Assign(value=value):
                count.update(names_in(value))
            case ast.For(iter=iterator, body=inner):
                count.update(names_in(iterator))
                count.update(reads(inner))
            case _:
                count.update(names_in(statement))
    return count


class Substitute(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, mapping: dict[str, ast.expr]) -> None:
        self.mapping = mapping

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.mapping.get(node.id, node)


def compute_once(body: list[ast.stmt], carried: set[str], known: dict[str, str] | None = None) -> list[ast.stmt]:
    """Names the first of equal expressions for all; `known` maps an expression to its name in enclosing blocks."""
    known = dict(known or {})
    same: dict[str, ast.expr] = {}
    kept: list[ast.stmt] = []
    for statement in body:
        new = Substitute(same).visit(statement) if not isinstance(statement, ast.For) else statement
        if isinstance(new, ast.For):
            inner: list[ast.stmt] = [Substitute(same).visit(item) for item in new.body]
            new = loop_over(new.target, Substitute(same).visit(new.iter), compute_once(inner, carried, known))
        elif isinstance(new, ast.Assign) and isinstance(new.targets[0], ast.Name):
            name, text = new.targets[0].id, ast.unparse(new.value)
            fresh = name not in carried and not carried & set(names_in(new.value)) and load_in(new.value) is None
            if fresh and text in known:
                same[name] = ast.Name(known[text])
                continue
            if fresh:
                known[text] = name
        kept.append(new)
    return kept


def without_unused(body: list[ast.stmt]) -> list[ast.stmt]:
    """Drops assignments that nothing reads, until none is left."""
    while True:
        slimmer = _drop(body, reads(body))
        if _size(slimmer) == _size(body):
            return slimmer
        body = slimmer


def _size(body: list[ast.stmt]) -> int:
    return sum(1 + _size(item.body) if isinstance(item, ast.For) else 1 for item in body)


def _drop(body: list[ast.stmt], count: Counter[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        match statement:
            case ast.Assign() if not any(_is_read(name, statement, count) for name in targets(statement)):
                continue
            case ast.For(target=target, iter=iterator, body=inner):
                slim = _drop(inner, count)
                if slim:
                    kept.append(loop_over(target, iterator, slim))
            case _:
                kept.append(statement)
    return kept


def _is_read(name: str, statement: ast.Assign, count: Counter[str]) -> bool:
    """Whether anything but the assignment itself reads the name."""
    own = names_in(statement.value).count(name)
    return count[name] > own
