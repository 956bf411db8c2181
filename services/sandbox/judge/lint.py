"""Static hints on a candidate's source. Feedback only: static rules accuse honest kernels; no verdict rests on them."""

import ast
from collections.abc import Iterator

from services.contracts import LintFinding

_COMPUTE_MODULES = frozenset({"torch", "F", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"})
_NOT_COMPUTE = frozenset({
    "arange", "as_strided", "as_tensor", "broadcast_shapes", "broadcast_tensors", "device", "dtype", "empty",
    "empty_like", "empty_strided", "finfo", "from_numpy", "full", "full_like", "iinfo", "is_tensor", "no_grad", "numel",
    "ones", "ones_like", "permute", "promote_types", "result_type", "scalar_tensor", "squeeze", "tensor", "transpose",
    "unsqueeze", "zeros", "zeros_like",
})  # fmt: skip
_INWARD = frozenset({
    "__builtins__", "__code__", "__dict__", "__globals__", "__import__", "__subclasses__", "__torch_dispatch__",
    "__torch_function__", "_getframe", "builtins", "cffi", "compile", "ctypes", "currentframe", "eval", "exec", "gc",
    "globals", "importlib", "inspect", "marshal", "multiprocessing", "pickle", "setattr", "subprocess",
    "threading",
})  # fmt: skip
"""Names by which Python code gets at the process it runs in, or at code that is not in its text."""
_TENSOR_METHODS = frozenset({"matmul", "mm", "bmm", "softmax", "sum", "mean", "sigmoid", "tanh", "relu", "addmm"})


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What reading a source may raise: the last two where it is nested too deep."""


def lint(source: str) -> list[LintFinding]:
    """Hints on a candidate's source, each with its line; an unreadable source gives the syntax error alone."""
    try:
        return _findings(ast.parse(source))
    except UNREADABLE as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        return [LintFinding(code="syntax_error", message=str(error) or "nested too deep", line=line)]


def _findings(tree: ast.Module) -> list[LintFinding]:
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_triton_kernel(node)]
    findings = [*_missing_parts(tree, kernels), *_forward_findings(tree)]
    for kernel in kernels:
        findings += _kernel_findings(kernel)
    return sorted(findings, key=lambda finding: finding.line or 0)


def is_triton_kernel(function: ast.FunctionDef) -> bool:
    """Whether a decorator is `triton.jit` or `jit`."""
    names = [_dotted(item.func if isinstance(item, ast.Call) else item) for item in function.decorator_list]
    return any(name in ("triton.jit", "jit") for name in names)


def kernel_lines(source: str) -> dict[str, int]:
    """The line of each Triton kernel's `def`, by name; empty for an unreadable source."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
        kernels = [node for node in nodes if isinstance(node, ast.FunctionDef) and is_triton_kernel(node)]
    except UNREADABLE:
        return {}
    return {node.name: node.lineno for node in kernels}


def reaches_around(source: str) -> str:
    """Where a source reaches into its own process, "line 12: sys.modules", or empty.

    Launches and bytes are counted in that process, so what it says of them is worth nothing then. Names can be hidden
    from this; that a candidate hides nothing is what a measurement on a GPU is for.
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
        modules = {name for node in nodes for name in _imported(node)}
        found = [(getattr(node, "lineno", 0), name) for node in nodes if (name := _reach(node, modules))]
    except UNREADABLE:
        return "it is nested too deep to be read"
    return f"line {min(found)[0]}: {min(found)[1]}" if found else ""


def _reach(node: ast.AST, modules: set[str]) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        members = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        return next((name for name in names if name.split(".")[0] in _INWARD or "._" in name), "") or next(
            (name for name in members if name in _INWARD), ""
        )
    if isinstance(node, ast.Name) and node.id in _INWARD:
        return node.id
    if isinstance(node, ast.Attribute):
        name = _dotted(node)
        patched = isinstance(node.ctx, ast.Store | ast.Del) and name.split(".")[0] in modules
        inward = node.attr.startswith("_") and node.attr in _INWARD
        return name if inward or patched or name == "sys.modules" or name.startswith("torch._C") else ""
    return ""


def _imported(node: ast.AST) -> Iterator[str]:
    """Names that an import binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)


def _missing_parts(tree: ast.Module, kernels: list[ast.FunctionDef]) -> Iterator[LintFinding]:
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if "ModelNew" not in classes:
        yield LintFinding(code="no_model_new", message="no class ModelNew at the top level of the file")
    if not kernels:
        yield LintFinding(code="no_triton_kernel", message="no function is decorated with @triton.jit")
        return
    launched = {_dotted(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    called = {_dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {kernel.name for kernel in kernels}
    if not names & (launched | called):
        yield LintFinding(
            code="kernel_never_launched",
            message=f"no kernel is launched: write {sorted(names)[0]}[grid](...) in forward",
            line=kernels[0].lineno,
        )


def _forward_findings(tree: ast.Module) -> Iterator[LintFinding]:
    for method in _forward_methods(tree):
        for node in ast.walk(method):
            if isinstance(node, ast.Try):
                yield LintFinding(
                    code="try_in_forward",
                    message="try in forward can hide a failed kernel behind a fallback: let the error out",
                    line=node.lineno,
                )
            name = _library_call(node)
            if name:
                yield LintFinding(
                    code="library_call",
                    message=f"forward leaves {name} to PyTorch; only generated kernels can win here",
                    line=getattr(node, "lineno", None),
                )


def _forward_methods(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            yield from (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name != "__init__")


def _library_call(node: ast.AST) -> str:
    """The name of a PyTorch computation, or empty."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "the @ product"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    owner, method = _dotted(node.func.value), node.func.attr
    if owner in _COMPUTE_MODULES and method not in _NOT_COMPUTE and not method.startswith("is_"):
        return f"{owner}.{method}"
    return f".{method}()" if owner not in ("tl", "triton", "math") and method in _TENSOR_METHODS else ""


def _kernel_findings(kernel: ast.FunctionDef) -> Iterator[LintFinding]:
    for node in ast.walk(kernel):
        if not isinstance(node, ast.Call):
            continue
        name, keywords = _dotted(node.func), {keyword.arg for keyword in node.keywords}
        if (
            name in ("tl.load", "tl.store")
            and _is_block_access(node, name)
            and not keywords & {"mask", "boundary_check"}
        ):
            yield LintFinding(
                code="unmasked_access",
                message=f"{name} of a tl.arange block has no mask: right only if the block divides the size",
                line=node.lineno,
            )
        if name == "tl.dot" and not keywords & {"input_precision", "allow_tf32"}:
            yield LintFinding(
                code="dot_precision",
                message="tl.dot rounds float32 to tf32 unless input_precision says otherwise ('ieee', 'tf32x3')",
                line=node.lineno,
            )


def _is_block_access(call: ast.Call, name: str) -> bool:
    """Whether the pointer is spelled with tl.arange in place and no mask is given by position."""
    if len(call.args) > (1 if name == "tl.load" else 2) or not call.args:
        return False
    return any(isinstance(node, ast.Call) and _dotted(node.func) == "tl.arange" for node in ast.walk(call.args[0]))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""
