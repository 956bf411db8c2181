"""What an op's source shows before it is ever run."""

import ast
from collections.abc import Iterator

from services.contracts import Finding
from services.sandbox.judge.findings import finding
from services.sandbox.judge.lint import UNREADABLE

MAX_SOURCE_BYTES = 1_000_000
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")


def check_source(source: str) -> list[Finding]:
    """Blockers that reading alone shows; the first kind that makes the rest meaningless ends the list."""
    if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        return [finding("source_too_large")]
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        return [finding("nul_bytes", line=line)]
    try:
        tree = ast.parse(source)
        return [*_missing(tree), *_cuda_devices(tree, source)]
    except UNREADABLE as error:
        return [_syntax_error(error)]


def _syntax_error(error: Exception) -> Finding:
    if not isinstance(error, SyntaxError):
        return finding("syntax_error", str(error) or "It is nested too deep.")
    code = f": {error.text.strip()}" if error.text else ""
    return finding("syntax_error", f"{error.msg}{code}", error.lineno)


def _missing(tree: ast.Module) -> Iterator[Finding]:
    bound = set(_bound_names(tree))
    return (finding(f"missing_{name.lower()}") for name in _REQUIRED if name not in bound)


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _cuda_devices(tree: ast.Module, source: str) -> Iterator[Finding]:
    """One finding for each line that asks for a GPU outright; choices by torch.cuda.is_available() are fine."""
    lines = source.splitlines()
    for line in sorted({node.lineno for node in _unguarded(tree) if _asks_for_cuda(node)}):
        yield finding("cuda_device", lines[line - 1].strip(), line)


def _unguarded(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp) and "is_available" in ast.dump(node.test):
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child)


def _asks_for_cuda(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value == "cuda" or node.value.startswith("cuda:")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
