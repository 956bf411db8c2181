"""The constructor of the rewritten module: the reference's signature, and the same state under the same names."""

import ast
import builtins
from dataclasses import dataclass

from services.contracts import AtenGraph, GraphInput, InputKind, ModuleSpec
from services.inference.seed.errors import NoSeedError

_IMPORTS = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}
_INDENT = "    "


@dataclass(frozen=True)
class Constructor:
    """Body of __init__, and the module-level constants that it reads."""

    parameters: str
    lines: list[str]
    constants: list[str]


def constructor(graph: AtenGraph, source: str) -> Constructor:
    """The reference's own __init__ where it stands alone, so that the same seed gives the same values; else the
    stock modules and plain parameters that the graph lists.
    """
    parameters = _checked_parameters(graph.init_parameters)
    copied = _copied(graph, source)
    body, constants = copied if copied is not None else (_rebuilt(graph), [])
    guard = _guard(graph)
    return Constructor(parameters, ["super().__init__()", *guard, *body], constants)


def state_expression(path: str) -> str:
    """ "self.layers[0].weight" for "layers.0.weight"."""
    text = "self"
    for part in path.split("."):
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return text


def _checked_parameters(text: str) -> str:
    try:
        tree = ast.parse(f"def f(self{', ' if text else ''}{text}): pass")
    except SyntaxError:
        raise NoSeedError(f"the constructor's signature ({text}) cannot be repeated") from None
    if len(tree.body) != 1 or ast.unparse(tree.body[0]).count("\n") != 1:
        raise NoSeedError(f"the constructor's signature ({text}) cannot be repeated")
    return text


def _guard(graph: AtenGraph) -> list[str]:
    """Refuses other constructor arguments than those that the kernels were specialised for."""
    values = {name: value for name, value in graph.init_values.items() if name.isidentifier()}
    if not values:
        return []
    names, wanted = ", ".join(values), ", ".join(repr(value) for value in values.values())
    left, right = (f"({names})", f"({wanted})") if len(values) > 1 else (names, wanted)
    words = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return [f"if {left} != {right}:", f"{_INDENT}raise ValueError({_quoted(f'specialised for {words}')})"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'


def _copied(graph: AtenGraph, source: str) -> tuple[list[str], list[str]] | None:
    """The body of the reference's __init__, if it needs nothing but torch and literal constants of its module."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    if model is None or len(model.bases) != 1 or ast.unparse(model.bases[0]) not in {"nn.Module", "torch.nn.Module"}:
        return None
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    init = methods.get("__init__")
    if init is None:
        return ([], []) if not graph.modules and not _state(graph) else None
    body = [statement for statement in init.body if not _calls_super(statement) and not _is_docstring(statement)]
    if any(_reads_self(statement, set(methods) | _class_attributes(model)) for statement in body):
        return None
    constants = _constants_for(body, init, tree)
    if constants is None:
        return None
    kept = _without_plain_attributes(body, set(graph.constants))
    return [line for statement in kept for line in ast.unparse(statement).splitlines()], constants


def _state(graph: AtenGraph) -> list[GraphInput]:
    return [item for item in graph.inputs if item.kind is not InputKind.INPUT]


def _calls_super(statement: ast.stmt) -> bool:
    return ast.unparse(statement) in {"super().__init__()", "super(Model, self).__init__()"}


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _class_attributes(model: ast.ClassDef) -> set[str]:
    targets = [target for node in model.body if isinstance(node, ast.Assign) for target in node.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _reads_self(statement: ast.stmt, names: set[str]) -> bool:
    attributes = [node for node in ast.walk(statement) if isinstance(node, ast.Attribute)]
    return any(
        isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in names for node in attributes
    )


def _constants_for(body: list[ast.stmt], init: ast.FunctionDef, tree: ast.Module) -> list[str] | None:
    """Assignments of literals at module level that the body reads; None where it needs anything else."""
    arguments = [*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs, init.args.vararg, init.args.kwarg]
    known = {argument.arg for argument in arguments if argument is not None} | set(dir(builtins)) | {"super"}
    stored = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name) and not _is_load(node)}
    loaded = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name) and _is_load(node)}
    imported = _torch_imports(tree)
    lines: list[str] = []
    for name in sorted(loaded - known - stored):
        if _IMPORTS.get(name) == imported.get(name) is not None:
            continue
        line = _literal_assignment(name, tree)
        if line is None:
            return None
        if line not in lines:
            lines.append(line)
    return lines


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _torch_imports(tree: ast.Module) -> dict[str, str]:
    """Imported name -> module, for imports at the file's top."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {item.asname or item.name.split(".")[0]: item.name for item in node.names if item.asname}
            found |= {item.name: item.name for item in node.names if not item.asname and "." not in item.name}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return found


def _literal_assignment(name: str, tree: ast.Module) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and name in {
            n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)
        }:
            try:
                ast.literal_eval(node.value)
            except ValueError:
                return None
            return ast.unparse(node)
    return None


def _without_plain_attributes(body: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """Without `self.eps = eps` and the like, which the kernels hold as constants, where nothing reads them."""
    text = "\n".join(ast.unparse(statement) for statement in body)
    kept = []
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value) if (
                not any(isinstance(node, ast.Call) for node in ast.walk(value))
                and text.count(f"self.{name}") == 1
                and name not in needed
            ):
                continue
        kept.append(statement)
    return kept


def _rebuilt(graph: AtenGraph) -> list[str]:
    """Statements that make every stock module, parameter and buffer under its own name."""
    root = _Holder()
    for spec in graph.modules:
        root.at(spec.path.split(".")).module = spec
    covered = {spec.path for spec in graph.modules}
    for item in _state(graph):
        owner, _, name = item.source.rpartition(".")
        if owner not in covered:
            holder = root.at(owner.split(".")) if owner else root
            holder.state.append((name, item))
    lines = root.lines("self")
    for second, first in graph.ties.items():
        lines.append(f"{state_expression(second)} = {state_expression(first)}")
    return lines


class _Holder:
    """A module in the tree of names."""

    def __init__(self) -> None:
        self.children: dict[str, _Holder] = {}
        self.state: list[tuple[str, GraphInput]] = []
        self.module: ModuleSpec | None = None

    def at(self, path: list[str]) -> "_Holder":
        """The module at a path, made where it is missing."""
        child = self.children.setdefault(path[0], _Holder())
        return child.at(path[1:]) if len(path) > 1 else child

    def lines(self, text: str) -> list[str]:
        """Statements that fill the module which `text` names."""
        lines = [line for name, item in self.state for line in _state_lines(text, name, item)]
        numbered = bool(self.children) and all(name.isdigit() for name in self.children)
        if numbered:
            count = max(int(name) for name in self.children) + 1
            items = [
                self.children[str(i)].constructor() if str(i) in self.children else "nn.Identity()"
                for i in range(count)
            ]
            lines = [f"{text} = nn.ModuleList([{', '.join(items)}])"]
        for name, child in self.children.items():
            path = f"{text}[{name}]" if numbered else f"{text}.{name}"
            if not numbered and not child.is_list:
                lines.append(f"{path} = {child.constructor()}")
            lines += child.lines(path)
        return lines

    @property
    def is_list(self) -> bool:
        """Whether the children are numbered, so that `lines` itself makes the list."""
        return bool(self.children) and all(name.isdigit() for name in self.children)

    def constructor(self) -> str:
        """The call that makes the module."""
        return f"nn.{self.module.class_name}({self.module.arguments})" if self.module else "nn.Module()"


def _state_lines(text: str, name: str, item: GraphInput) -> list[str]:
    shape = ", ".join(map(str, item.spec.shape)) or "()"
    value = f"torch.empty({shape}, dtype=torch.{item.spec.dtype})"
    if item.kind is InputKind.BUFFER:
        return [f'{text}.register_buffer("{name}", {value})']
    floating = item.spec.dtype.startswith(("float", "bfloat"))
    suffix = "" if floating else ", requires_grad=False"
    return [f"{text}.{name} = nn.Parameter({value}{suffix})"]
