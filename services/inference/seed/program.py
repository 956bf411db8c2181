"""Reads the Python module that Inductor writes: its kernels and the statements of its call function."""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from services.inference.seed.errors import NoSeedError

_SOURCE_NODES = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\]")
_IGNORED_CALLS = {"copy_if_misaligned", "get_raw_stream"}


@dataclass
class WrittenKernel:
    """One kernel as Inductor wrote it."""

    name: str
    function: ast.FunctionDef
    combines: list[ast.FunctionDef]
    """Jit functions beside it, for scans."""
    heuristic: str
    """"pointwise", "reduction" or "persistent_reduction"."""
    options: ast.Call
    """The heuristic's own call, for its configurations."""
    pointer_types: dict[str, str]
    """Argument -> Triton's short name of what it points to, e.g. "fp32"."""
    mutated: list[str]
    grid: str
    sources: list[str] = field(default_factory=list)
    """Names of the graph's nodes that it computes."""


@dataclass
class Allocation:
    """`name` is an uninitialised buffer."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


@dataclass
class Launch:
    """One launch of a kernel: the positional arguments without the sizes."""

    kernel: str
    arguments: list[ast.expr]


@dataclass
class LibraryCall:
    """A call that stays one. `out`: the buffer that it fills, where it does not return a new one."""

    name: str
    call: ast.Call
    out: ast.expr | None = None
    sources: list[str] = field(default_factory=list)


@dataclass
class Rename:
    """`name` is another name of `value`, or a view or an item of it."""

    name: str
    value: ast.expr


Step = Allocation | Launch | LibraryCall | Rename


@dataclass
class Program:
    """What Inductor made of the graph."""

    arguments: list[str]
    kernels: dict[str, WrittenKernel]
    steps: list[Step]
    results: list[ast.expr]


def read_program(text: str) -> Program:
    """Parses Inductor's module. Raises NoSeedError at anything that has no readable form."""
    tree = ast.parse(text)
    kernels = {kernel.name: kernel for kernel in _kernels(tree, text)}
    call = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"), None)
    if call is None:
        raise NoSeedError("Inductor's program has no call function")
    return _read_call(call, kernels, text.splitlines())


def _kernels(tree: ast.Module, text: str) -> list[WrittenKernel]:
    lines = text.splitlines()
    found = []
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr=kind), args=[_, ast.Constant(value=str(source)), *_]),
            ):
                if kind != "triton":
                    raise NoSeedError(f"Inductor wrote a kernel in another language ({kind})")
                found.append(_read_kernel(name, source, _sources_above(lines, node.lineno)))
    return found


def _sources_above(lines: list[str], line: int) -> list[str]:
    """Names in the nearest comment above a line (counted from 1)."""
    for text in reversed(lines[: line - 1]):
        if match := _SOURCE_NODES.search(text):
            return [name.strip() for name in match.group(1).split(",") if name.strip()]
        if not text.lstrip().startswith("#"):
            break
    return []


def _read_kernel(name: str, source: str, sources: list[str]) -> WrittenKernel:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    function = functions[-1]
    decorators = [call for call in function.decorator_list if isinstance(call, ast.Call)]
    options = next((call for call in decorators if ast.unparse(call.func).startswith("triton_")), None)
    if options is None or not isinstance(options.func, ast.Attribute):
        raise NoSeedError(f"Inductor's kernel {name} has no heuristic")
    meta = _keyword(options, "triton_meta")
    inductor = _keyword(options, "inductor_meta")
    signature = ast.literal_eval(_entry(meta, "signature"))
    return WrittenKernel(
        name=name,
        function=function,
        combines=functions[:-1],
        heuristic=options.func.attr,
        options=options,
        pointer_types={key: value[1:] for key, value in signature.items() if value.startswith("*")},
        mutated=ast.literal_eval(_entry(inductor, "mutated_arg_names")),
        grid=ast.literal_eval(_entry(inductor, "grid_type")),
        sources=sources,
    )


def _keyword(call: ast.Call, name: str) -> ast.Dict:
    for keyword in call.keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.Dict):
            return keyword.value
    raise NoSeedError(f"Inductor's kernel has no {name}")


def _entry(mapping: ast.Dict, name: str) -> ast.expr:
    for key, value in zip(mapping.keys, mapping.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == name:
            return value
    raise NoSeedError(f"Inductor's kernel has no {name}")


def _read_call(call: ast.FunctionDef, kernels: dict[str, WrittenKernel], lines: list[str]) -> Program:
    program = Program([], kernels, [], [])
    for statement in _flat(call.body):
        _read_statement(statement, program, lines)
    return program


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with the device guard unwrapped."""
    return [inner for node in body for inner in (_flat(node.body) if isinstance(node, ast.With) else [node])]


def _read_statement(statement: ast.stmt, program: Program, lines: list[str]) -> None:
    match statement:
        case ast.Delete() | ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear" | "set_device"))):
            return
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
            program.arguments = [ast.unparse(name) for name in names]
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Name(id=function))) if function in _IGNORED_CALLS:
            return
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="empty_strided_cuda"), args=arguments)
        ):
            program.steps.append(_allocation(name, arguments))
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Name() | ast.Subscript() | ast.Call(func=ast.Name()) as value
        ):
            program.steps.append(Rename(name, value))
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
            program.steps.append(LibraryCall(name, call, None, _sources_above(lines, statement.lineno)))
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=kernel), attr="run")) as call):
            if kernel not in program.kernels:
                raise NoSeedError(f"Inductor's program launches an unknown kernel {kernel}")
            count = len(program.kernels[kernel].pointer_types)
            program.steps.append(Launch(kernel, call.args[:count]))
        case ast.Expr(value=ast.Call(keywords=keywords) as call):
            program.steps.append(_filling_call(call, keywords, _sources_above(lines, statement.lineno)))
        case ast.Return(value=ast.Tuple(elts=results)):
            program.results = results
        case _:
            raise NoSeedError(f"Inductor's program holds a statement without a readable form: {_short(statement)}")


def _allocation(name: str, arguments: list[ast.expr]) -> Allocation:
    shape, stride = (ast.literal_eval(argument) for argument in arguments[:2])
    return Allocation(name, shape, stride, ast.unparse(arguments[2]))


def _filling_call(call: ast.Call, keywords: list[ast.keyword], sources: list[str]) -> LibraryCall:
    """extern_kernels.mm(a, b, out=buffer)."""
    outs = [keyword.value for keyword in keywords if keyword.arg == "out"]
    if len(outs) != 1:
        raise NoSeedError(f"Inductor's program holds a call without a readable form: {_short(call)}")
    rest = [keyword for keyword in keywords if keyword.arg != "out"]
    name = outs[0].id if isinstance(outs[0], ast.Name) else ""
    return LibraryCall(name, ast.Call(call.func, call.args, rest), outs[0], sources)


def _short(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:120]


def literal(node: ast.expr) -> Any:
    """The value of a literal; NoSeedError for anything else, such as a size that is only known at run time."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise NoSeedError(f"{ast.unparse(node)!r} is not known before the program runs") from None
