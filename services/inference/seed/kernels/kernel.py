"""The last pass over a kernel: single-use values move into their use, the others get names."""

import ast
import copy
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.inference.seed.errors import NoSeedError
from services.inference.seed.kernels.facts import assign, call_name, load_in, loop_over, pointer_name
from services.inference.seed.kernels.layout import lines_of
from services.inference.seed.kernels.naming import Namer, carried_name, tuple_names, value_name
from services.inference.seed.kernels.normalise import Normaliser
from services.inference.seed.kernels.reduce import (
    Substitute,
    carried_names,
    compute_once,
    names_in,
    reads,
    targets,
    without_unused,
)
from services.inference.seed.program import WrittenKernel

LONGEST_INLINE = 52
_FIXED_NAMES = {
    "flat": {"xindex": "offsets", "xmask": "mask", "xnumel": "n_elements", "XBLOCK": "BLOCK_SIZE"},
    "plane": {
        "yindex": "row", "ymask": "row_mask", "ynumel": "n_rows", "YBLOCK": "BLOCK_ROWS",
        "xindex": "col", "xmask": "col_mask", "xnumel": "n_cols", "XBLOCK": "BLOCK_COLS", "yxmask": "mask",
    },
    "rows": {
        "xindex": "row", "xmask": "row_mask", "xnumel": "n_rows", "XBLOCK": "BLOCK_ROWS",
        "r0_index": "col", "r0_mask": "col_mask", "r0_numel": "n_cols", "R0_BLOCK": "BLOCK_COLS",
        "rxmask": "mask", "r0_offset": "start",
    },
}  # fmt: skip
_NAMED_VALUES = {"mean", "variance", "mean_square", "rstd"}
_NAMED_CALLS = ("tl.max", "tl.min", "tl.reduce", "tl.associative_scan")


@dataclass
class PlainKernel:
    """A rewritten kernel. Names of arguments: those of the tensors with "_ptr"."""

    parameters: list[tuple[str, str]]
    """Inductor's argument and the new one, in order."""
    constants: dict[str, int]
    """Compile-time sizes to pass at a launch."""
    blocks: dict[str, str]
    """Inductor's tile size -> the new one."""
    grid: list[tuple[int, str]]
    """(elements, tile size) of each grid axis."""
    elements: int
    """Of all tiles together, reduced ones included."""
    lines: list[str]
    functions: set[str]
    combines: dict[str, str] = field(default_factory=dict)
    """Source of the jit functions that a scan uses, by name."""
    libdevice: bool = False
    stored: dict[str, str] = field(default_factory=dict)
    """Inductor's argument of an output -> the name of the value stored there."""
    mutated: list[str] = field(default_factory=list)


def rewrite_kernel(
    written: WrittenKernel, tensors: dict[str, str], result_shape: list[int], *, exact_extremes: bool
) -> PlainKernel:
    """Plain Triton for one kernel.

    `tensors` gives the names of the tensors behind its arguments, where known; `result_shape` is that of an output.
    """
    carried = carried_names(written.function.body)
    normaliser = Normaliser(written.pointer_types, carried, exact_extremes=exact_extremes)
    body = normaliser.block(written.function.body)
    shape = _shape_of(normaliser.axes)
    body = without_unused(compute_once(body, carried))
    writer = _Writer(body, _FIXED_NAMES[shape], carried, tensors, normaliser, result_shape)
    writer.block(body, depth=1)
    return writer.finish(written)


def _shape_of(axes: set[str]) -> str:
    kinds = {frozenset("x"): "flat", frozenset("xy"): "plane", frozenset("xr"): "rows"}
    shape = kinds.get(frozenset(axes))
    if shape is None:
        raise NoSeedError(f"Inductor tiled a kernel along {len(axes)} axes ({', '.join(sorted(axes))})")
    return shape


class _Writer:
    """Walks the statements in order and prints them."""

    def __init__(
        self,
        body: list[ast.stmt],
        fixed: dict[str, str],
        carried: set[str],
        tensors: dict[str, str],
        normaliser: Normaliser,
        shape: list[int],
    ) -> None:
        self.fixed = fixed
        self.carried = carried
        self.tensors = tensors
        self.normaliser = normaliser
        self.reads: Counter[str] = reads(body)
        self.destinations = dict(_destinations(body))
        self.namer = Namer(set(fixed.values()) | set(normaliser.functions))
        self.final: dict[str, ast.expr] = {name: ast.Name(new) for name, new in fixed.items()}
        self.pending: dict[str, ast.expr] = {}
        """Values on their way into their only use."""
        self.pointers: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self.shape = shape
        self.positions = {"offsets", "row", "col"}
        """Names of numbers that come from the program's position alone."""
        self.lines: list[str] = []
        self.combines: dict[str, str] = {}
        self.column_count = self._column_count(body)
        self.uses_column_count = False

    def _column_count(self, body: list[ast.stmt]) -> int | None:
        """The number that stands for the length of a row: a reduction's, or the only divisor of flat offsets."""
        if "r" in self.normaliser.axes:
            return self.normaliser.sizes.get("r0_numel")
        divisors = {
            node.right.value
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.FloorDiv | ast.Mod)
            and isinstance(node.right, ast.Constant)
            and isinstance(node.right.value, int)
        }
        return divisors.pop() if len(divisors) == 1 and self.normaliser.axes == {"x"} else None

    def block(self, body: list[ast.stmt], depth: int) -> None:
        """Prints the statements of one block."""
        local = Counter(name for item in body if not isinstance(item, ast.For) for name in _read_by(item))
        for statement in body:
            match statement:
                case ast.For():
                    start = self._expression(statement.target)
                    self._print(loop_over(start, self._expression(statement.iter), []), depth)
                    self.block(statement.body, depth + 1)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value, local, depth)
                case ast.Assign(value=value):
                    self._assign_several(targets(statement), value, depth)
                case ast.Expr(value=ast.Call() as call):
                    self._effect(call, depth)

    def _assign(self, name: str, value: ast.expr, local: Counter[str], depth: int) -> None:
        new = self._expression(value)
        if name in self.fixed:
            self._print(assign(ast.Name(self.fixed[name]), new), depth)
            return
        if name in self.carried:
            self._assign_carried(name, new, depth)
            return
        once = self.reads[name] == 1 and local[name] == 1
        computed = value.value if isinstance(value, ast.Subscript) else value
        plain = load_in(value) is None and not call_name(computed).startswith(_NAMED_CALLS)
        named = value_name(new) in _NAMED_VALUES
        if once and plain and not named and len(ast.unparse(new)) <= LONGEST_INLINE:
            self.final[name] = self.pending[name] = new
            return
        self._name_and_print(name, new, self._wish(name, value, new), depth)

    def _assign_carried(self, name: str, new: ast.expr, depth: int) -> None:
        if name not in self.final:
            self.final[name] = ast.Name(self.namer.fresh(carried_name(name)))
        target = self.final[name]
        for waiting, expression in list(self.pending.items()):
            # its value is the one before this assignment
            if set(names_in(target)) & set(names_in(expression)):
                self._name_and_print(waiting, expression, value_name(expression), depth)
                del self.pending[waiting]
        self._print(assign(target, new), depth)

    def _wish(self, name: str, value: ast.expr, new: ast.expr) -> str:
        if tensor := self.tensors.get(self.destinations.get(name, "")):
            return tensor
        if load := load_in(value):
            return self.tensors.get(pointer_name(load.args[0]), "value")
        if (name[0] in "xyzr" and name[1:2].isdigit()) or name.startswith("r0_"):
            return self._index_name(new)
        return value_name(new)

    def _index_name(self, new: ast.expr) -> str:
        """A position derived from the flat offset, or from a row's or column's number."""
        if dimension := self._dimension(new):
            return dimension
        base = next((n for n in names_in(new) if n in {"offsets", "row", "col"}), "offsets")
        divided = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv) for part in ast.walk(new))
        wrapped = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(new))
        if base == "offsets":
            return "middle_index" if divided and wrapped else "row_index" if divided else "col_index"
        return f"{base}_middle" if divided and wrapped else f"{base}_outer" if divided else f"{base}_inner"

    def _dimension(self, new: ast.expr) -> str | None:
        """ "dim1" for offsets // stride % size, where the result has a dimension of this stride and size."""
        match new:
            case ast.BinOp(
                left=ast.BinOp(left=ast.Name(id="offsets"), op=ast.FloorDiv(), right=stride), op=ast.Mod(), right=size
            ):
                wanted = (self._number(stride), self._number(size))
            case ast.BinOp(left=ast.Name(id="offsets"), op=ast.Mod(), right=size):
                wanted = (1, self._number(size))
            case ast.BinOp(left=ast.Name(id="offsets"), op=ast.FloorDiv(), right=stride):
                wanted = (self._number(stride), None)
            case _:
                return None
        if len(self.shape) < 3:
            return None
        step = 1
        for i in range(len(self.shape) - 1, -1, -1):
            if wanted == (step, self.shape[i]) or (i == 0 and wanted == (step, None)):
                return f"dim{i}"
            step *= self.shape[i]
        return None

    def _number(self, node: ast.expr) -> int | None:
        if isinstance(node, ast.Name) and node.id == "n_cols":
            return self.column_count
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None

    def _name_and_print(self, name: str, new: ast.expr, wish: str, depth: int) -> None:
        final = self.namer.fresh(wish)
        if set(names_in(new)) <= self.positions | {"n_cols"}:
            self.positions.add(final)
        self.final[name] = ast.Name(final)
        self._print(assign(ast.Name(final), new), depth)

    def _assign_several(self, names: list[str], value: ast.expr, depth: int) -> None:
        new = self._expression(value)
        wishes = tuple_names(call_name(value), len(names))
        if call_name(value) == "tl.associative_scan":
            wishes = tuple("scanned" for _ in names)
        finals = [self.namer.fresh(wish) for wish in wishes]
        self.final |= {name: ast.Name(final) for name, final in zip(names, finals, strict=True)}
        shown = [ast.Name(final if self.reads[name] else "_") for name, final in zip(names, finals, strict=True)]
        self._print(assign(ast.Tuple([*shown]), new), depth)

    def _effect(self, call: ast.Call, depth: int) -> None:
        if call_name(call) == "tl.debug_barrier":
            self._print(ast.Expr(call), depth)
            return
        pointer = pointer_name(call.args[0])
        value = self._expression(call.args[1])
        if isinstance(value, ast.Constant):
            self.stored.setdefault(pointer, "zeros" if value.value == 0 else "filled")
        elif not isinstance(value, ast.Name):
            final = self.namer.fresh(self.tensors.get(pointer) or value_name(value))
            self._print(assign(ast.Name(final), value), depth)
            value = ast.Name(final)
        if isinstance(value, ast.Name):
            self.stored.setdefault(pointer, value.id)
        address = self._expression(call.args[0])
        keywords = [ast.keyword(keyword.arg, self._expression(keyword.value)) for keyword in call.keywords]
        self._print(ast.Expr(ast.Call(call.func, [address, value], keywords)), depth)

    def _pointer(self, original: str) -> ast.expr:
        if original not in self.pointers:
            base = self.tensors.get(original) or self.stored.get(original) or original
            self.pointers[original] = self.namer.fresh(f"{base}_ptr")
        return ast.Name(self.pointers[original])

    def _expression(self, node: ast.expr) -> ast.expr:
        """The expression in final names."""
        for name in names_in(node):
            self.pending.pop(name, None)
            if name in self.normaliser.book.pointers:
                self._pointer(name)
        mapping = self.final | {name: ast.Name(new) for name, new in self.pointers.items()}
        mapping |= {name: ast.Name(self._combine_name(name)) for name in names_in(node) if "_helper_fn" in name}
        new: ast.expr = _Polish(self).visit(Substitute(mapping).visit(copy.deepcopy(node)))
        return new

    def _combine_name(self, original: str) -> str:
        word = original.removeprefix("_triton_helper_fn_").rstrip("0123456789")
        return self.combines.setdefault(original, f"combine_by_{word}")

    def _print(self, statement: ast.stmt, depth: int) -> None:
        self.lines += lines_of(ast.fix_missing_locations(statement), depth)

    def finish(self, written: WrittenKernel) -> PlainKernel:
        """The kernel with what a launch must pass."""
        normaliser = self.normaliser
        used = self._used()
        constants = {self.fixed[name]: size for name, size in normaliser.sizes.items() if self.fixed.get(name) in used}
        if self.uses_column_count and self.column_count is not None:
            constants["n_cols"] = self.column_count
        fixed_blocks = {
            self.fixed[name]: size for name, size in normaliser.fixed_blocks.items() if self.fixed.get(name) in used
        }
        arguments = [argument.arg for argument in written.function.args.args]
        blocks = {name: self.fixed[name] for name in arguments if name.endswith("BLOCK")}
        return PlainKernel(
            parameters=[(name, self.pointers[name]) for name in arguments if name in self.pointers],
            constants=constants | fixed_blocks,
            blocks=blocks,
            grid=self._grid(written, blocks),
            elements=math.prod(normaliser.sizes.values()),
            lines=self.lines,
            functions=normaliser.functions,
            combines={new: _combine_source(new, old, written) for old, new in self.combines.items()},
            libdevice=normaliser.libdevice,
            stored=self.stored,
            mutated=[self.pointers[name] for name in written.mutated if name in self.pointers],
        )

    def _used(self) -> set[str]:
        return {
            node.id for node in ast.walk(ast.parse("if True:\n" + "\n".join(self.lines))) if isinstance(node, ast.Name)
        }

    def _grid(self, written: WrittenKernel, blocks: dict[str, str]) -> list[tuple[int, str]]:
        axes = {"Grid1D": ["x"], "Grid2D": ["x", "y"], "Grid2DWithYZOverflow": ["x", "y"]}.get(written.grid)
        if axes is None:
            raise NoSeedError(f"Inductor's launch grid {written.grid} has no plain form")
        grid = [(self.normaliser.sizes[f"{axis}numel"], blocks.get(f"{axis.upper()}BLOCK", "1")) for axis in axes]
        if written.grid == "Grid2DWithYZOverflow" and grid[1][0] > 65535:
            raise NoSeedError("a kernel needs more than 65535 programs along its second axis")
        return grid


def _read_by(statement: ast.stmt) -> list[str]:
    return names_in(statement.value) if isinstance(statement, ast.Assign) else names_in(statement)


def _destinations(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Names that are stored as they are, each with the pointer that it is stored through."""
    for statement in body:
        match statement:
            case ast.For(body=inner):
                yield from _destinations(inner)
            case ast.Expr(value=ast.Call(args=[address, ast.Name(id=name)])):
                yield name, pointer_name(address)


class _Polish(ast.NodeTransformer):
    """Writes n_cols for the length of a row, and one selection for two with the same condition."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if call_name(node) == "tl.where":
            condition, first, second = node.args
            nested = isinstance(first, ast.Call) and call_name(first) == "tl.where"
            if nested and isinstance(first, ast.Call) and ast.unparse(first.args[0]) == ast.unparse(condition):
                return ast.Call(node.func, [condition, first.args[1], second], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        count = self.writer.column_count
        arithmetic = isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod | ast.Div)
        if arithmetic and count is not None and count >= 8 and isinstance(node.right, ast.Constant):
            same = node.right.value == count and not isinstance(node.right.value, bool)
            is_size = isinstance(node.right.value, int) or isinstance(node.op, ast.Div)
            along_row = isinstance(node.op, ast.Mult) and {"col", "start"} & set(names_in(node.left))
            if same and is_size and not along_row:
                self.writer.uses_column_count = True
                return ast.BinOp(node.left, node.op, ast.Name("n_cols"))
        return node


def _combine_source(name: str, original: str, written: WrittenKernel) -> str:
    """A scan's combine function, in one expression."""
    function = next(item for item in written.combines if item.name == original)
    names = [argument.arg for argument in function.args.args]
    mapping: dict[str, ast.expr] = {old: ast.Name(new) for old, new in zip(names, "abcdef", strict=False)}
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                mapping[target] = Substitute(mapping).visit(copy.deepcopy(value))
            case ast.Return(value=ast.expr() as value):
                result = ast.unparse(Substitute(mapping).visit(copy.deepcopy(value)))
                if "triton_helpers" in result:
                    break
                header = f"@triton.jit\ndef {name}({', '.join('abcdef'[: len(names)])}):"
                return f'\n{header}\n    """Joins two neighbouring parts of a scan."""\n    return {result}\n'
    raise NoSeedError("a scan combines its parts in a way without a plain form")
