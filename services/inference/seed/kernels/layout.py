"""Prints statements within 120 columns."""

import ast

WIDTH = 120
_INDENT = "    "


def lines_of(statement: ast.stmt, depth: int) -> list[str]:
    """The statement's lines, broken at arguments or operators where it is too long."""
    match statement:
        case ast.Assign(targets=[target], value=value):
            return _broken(f"{_tuple_text(target)} = ", value, depth)
        case ast.Expr(value=value):
            return _broken("", value, depth)
        case ast.For(target=target, iter=iterator):
            return [f"{_INDENT * depth}for {ast.unparse(target)} in {ast.unparse(iterator)}:"]
    return [_INDENT * depth + ast.unparse(statement)]


def _tuple_text(target: ast.expr) -> str:
    if isinstance(target, ast.Tuple):
        names = ", ".join(ast.unparse(item) for item in target.elts)
        return f"({names},)" if len(target.elts) == 1 else names
    return ast.unparse(target)


def _broken(head: str, value: ast.expr, depth: int) -> list[str]:
    line = f"{_INDENT * depth}{head}{text_of(value)}"
    if len(line) <= WIDTH:
        return [line]
    inner = _INDENT * (depth + 1)
    match value:
        case ast.Call():
            arguments = [text_of(argument) for argument in value.args]
            arguments += [f"{keyword.arg}={text_of(keyword.value)}" for keyword in value.keywords]
            opening = f"{_INDENT * depth}{head}{ast.unparse(value.func)}("
            return [opening, *(f"{inner}{argument}," for argument in arguments), f"{_INDENT * depth})"]
        case ast.BinOp():
            left, right = text_of(value.left), text_of(value.right)
            operator = ast.unparse(ast.BinOp(ast.Name("a"), value.op, ast.Name("b")))[2:-2]
            left = f"({left})" if _binds_less(value.left, value.op) else left
            right = f"({right})" if _binds_less(value.right, value.op) or isinstance(value.right, ast.BinOp) else right
            return [
                f"{_INDENT * depth}{head}(", f"{inner}{left}", f"{inner}{operator} {right}", f"{_INDENT * depth})",
            ]  # fmt: skip
    return [line]


def _binds_less(node: ast.expr, op: ast.operator) -> bool:
    whole = ast.unparse(ast.BinOp(node, op, ast.Name("b")))
    return whole.startswith("(")


def text_of(node: ast.expr) -> str:
    """The expression in source form."""
    return ast.unparse(node).replace("'", '"')
