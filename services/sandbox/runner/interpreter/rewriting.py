"""Kernels' sources rewritten so that their control flow asks `control` instead of Python's truth of an object."""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from . import control
from .errors import UnsupportedLanguage

_RUNTIME = "__kernel_control__"
_FACTORY = "__kernel_factory__"
_BUILTINS = {"range": "loop_range", "min": "smallest", "max": "largest"}

Node = TypeVar("Node", bound=ast.AST)


class _Rewriter(ast.NodeTransformer):
    """One pass over a kernel; `shadowed` are names that hide Python's builtins there."""

    def __init__(self, shadowed: frozenset[str]) -> None:
        self.shadowed = shadowed

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = []
        node.returns = None
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            argument.annotation = None
        # The function object keeps its own defaults; they only need a place here.
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def _visit_test(self, node: Node) -> Node:
        self.generic_visit(node)
        node.test = _call("decide", node.test)  # type: ignore[attr-defined]
        return node

    visit_If = visit_While = visit_IfExp = visit_Assert = _visit_test

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        *others, result = node.values
        for value in reversed(others):
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            result = _call(name, value, ast.Lambda(args=nothing, body=result))
        return ast.copy_location(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(_call("negate", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        if len(node.ops) > 1:
            raise UnsupportedLanguage(f"line {node.lineno}: Triton has no chained comparisons: write a < b and b < c")
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Name) and function.id in _BUILTINS and function.id not in self.shadowed:
            node.func = ast.copy_location(_attribute(_BUILTINS[function.id]), function)
        return node


def rewrite(function: FunctionType) -> Callable[..., Any]:
    """The same function with its control flow rewritten; unchanged where it has no source.

    Line numbers, defaults, globals and captured variables stay.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return function
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    captured = function.__code__.co_freevars
    known = {*function.__globals__, *captured, *function.__code__.co_varnames}
    shadowed = frozenset(name for name in _BUILTINS if name in known)
    _Rewriter(shadowed).visit(definition)
    rewritten = _compile(definition, function, captured)
    rewritten.__defaults__ = function.__defaults__
    rewritten.__kwdefaults__ = function.__kwdefaults__
    return rewritten


def definition_line(function: FunctionType) -> int | None:
    """The line of `def` in the function's file, below its decorators."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    for number, line in enumerate(lines):
        if line.lstrip().startswith("def "):
            return first + number
    return first


def _compile(definition: ast.FunctionDef, function: FunctionType, captured: tuple[str, ...]) -> FunctionType:
    parameters = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in captured], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    returned = ast.Return(ast.Name(definition.name, ast.Load()))
    factory = ast.FunctionDef(name=_FACTORY, args=parameters, body=[definition, returned], decorator_list=[])
    ast.copy_location(factory, definition)
    module = ast.fix_missing_locations(ast.Module(body=[factory], type_ignores=[]))
    function.__globals__.setdefault(_RUNTIME, control)
    function.__globals__.setdefault("__builtins__", builtins)
    made: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, made)  # noqa: S102
    result: FunctionType = made[_FACTORY](*(cell.cell_contents for cell in function.__closure__ or ()))
    return result


def _attribute(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(_RUNTIME, ast.Load()), name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    call = ast.Call(func=_attribute(name), args=list(arguments), keywords=[])
    return ast.copy_location(call, arguments[0])
