"""First pass over a kernel: Inductor's idioms become plain Triton, one operation to a statement as before."""

import ast
import math

from services.inference.seed.errors import NoSeedError
from services.inference.seed.kernels.addresses import tidy_address
from services.inference.seed.kernels.constants import (
    as_literal,
    dtype_expression,
    folded,
    is_full_scalar,
    is_negative,
    is_number,
    is_times_minus_one,
    negated,
)
from services.inference.seed.kernels.device_functions import TRITON_HELPERS
from services.inference.seed.kernels.facts import (
    FactBook,
    Facts,
    assign,
    call_name,
    dotted,
    is_float,
    keeps_dims,
    loop_over,
    short_dtype,
    without_slices,
)
from services.inference.seed.kernels.masks import JOINT_MASKS, is_true, mask_keyword, within_row, zero_outside

_AXIS_OF = {"xindex": "x", "yindex": "y", "zindex": "z", "r0_index": "r", "r0_base": "r"}
_MASK_OF = {"xmask": "x", "ymask": "y", "zmask": "z", "r0_mask": "r"}
_DROPPED = {"rnumel", "RBLOCK", "roffset", "rindex", "rbase"}
_ALIASES = {"rindex": "r0_index", "rbase": "r0_base", "roffset": "r0_offset", "RBLOCK": "R0_BLOCK"}
_PLAIN_TL = {"exp", "exp2", "log", "log2", "rsqrt", "sqrt", "floor", "ceil", "erf", "abs", "sin", "cos"}
_TL_NAMES = {"sqrt": "sqrt_rn"}
_AXIS_ONE = ast.keyword("axis", ast.Constant(1))
_REDUCE_BY = {"prod": "multiply", "any": "either"}
KEEPS_ROWS = {"online_softmax_finish", "welford_finish", "largest_with_index", "smallest_with_index"}
"""Functions of ours whose results already are columns of shape [rows, 1]."""


class Normaliser(ast.NodeTransformer):
    """Collects what a kernel's prelude says, and rewrites its expressions."""

    def __init__(self, pointers: dict[str, str], carried: set[str], *, exact_extremes: bool) -> None:
        self.sizes: dict[str, int] = {}
        """Numbers of elements along the axes, e.g. {"xnumel": 512}."""
        self.fixed_blocks: dict[str, int] = {}
        """Tile sizes that the kernel itself fixes."""
        self.axes: set[str] = set()
        self.functions: set[str] = set()
        """Device functions that are called."""
        self.libdevice = False
        self.carried = carried
        """Names that a loop changes."""
        self.exact_extremes = exact_extremes
        self.aliases: dict[str, ast.expr] = {}
        self.full_masks: set[str] = set()
        self.seen_masks: set[str] = set()
        self.columns: set[str] = set()
        self.zero_filled: dict[str, set[str]] = {}
        """Names of loads that give 0 where a mask does not hold -> the masks."""
        self.widened: dict[str, ast.expr] = {}
        """Names of 64-bit copies of 32-bit indices -> the index."""
        indices = {name: Facts(frozenset(axis), "i32") for name, axis in _AXIS_OF.items()}
        masks = {name: Facts(frozenset(axis), "i1") for name, axis in _MASK_OF.items()}
        masks |= {"rxmask": Facts(frozenset("rx"), "i1"), "yxmask": Facts(frozenset("yx"), "i1")}
        self.book = FactBook(indices | masks | {"r0_offset": Facts(frozenset(), "i32")}, pointers)

    def new(self, node: ast.expr) -> ast.expr:
        """The rewritten expression."""
        rewritten: ast.expr = self.visit(node)
        return rewritten

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of one block, without what has become needless."""
        return [kept for statement in body for kept in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                if isinstance(value, ast.Constant) and isinstance(value.value, int):
                    self.fixed_blocks[name] = value.value
                return []
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assignment(name, value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                return self._several([ast.unparse(name) for name in names], value)
            case ast.Expr(value=ast.Call() as call):
                return self._call_statement(call)
            case ast.For(target=ast.Name(id=name), iter=iterator):
                return [loop_over(ast.Name(name), self.new(iterator), self.block(statement.body))]
            case ast.Pass():
                return []
        raise NoSeedError(f"a kernel holds a statement without a plain form: {ast.unparse(statement)[:100]}")

    def _assignment(self, name: str, value: ast.expr) -> list[ast.stmt]:
        if name.endswith("numel") and isinstance(value, ast.Constant) and isinstance(value.value, int):
            self.sizes[name] = value.value
            return []
        if name in _DROPPED:
            return []
        if name in _MASK_OF and call_name(without_slices(value)).startswith("tl.full"):
            self.full_masks.add(name)
            return []
        if name in _AXIS_OF and name != "r0_base":
            self.axes.add(_AXIS_OF[name])
        new = self.new(value)
        if name not in self.carried and (isinstance(new, ast.Name | ast.Constant) or is_full_scalar(new)):
            self.aliases[name] = new
            return []
        if name not in _AXIS_OF and name not in _MASK_OF:
            known = self.book.names.get(name) if name in self.carried else None
            self.book.names[name] = known or self.book.of(new)
        if masks := zero_outside(new):
            self.zero_filled[name] = masks
        if (plain := _narrow(self, new)) is not new:
            self.widened[name] = plain
        return [assign(ast.Name(name), new), *self._joint_mask(name)]

    def _joint_mask(self, name: str) -> list[ast.stmt]:
        """One name for the mask over both axes, made where the second of the two masks is known."""
        other = {"r0_mask": "xmask", "xmask": "ymask"}.get(name)
        if other is None or other not in self.seen_masks:
            self.seen_masks.add(name)
            return []
        self.seen_masks.add(name)
        joint = JOINT_MASKS[frozenset((name, other))]
        return [assign(ast.Name(joint), ast.BinOp(ast.Name(other), ast.BitAnd(), ast.Name(name)))]

    def _several(self, names: list[str], value: ast.expr) -> list[ast.stmt]:
        new = self.new(value)
        function = call_name(new)
        axes = self.book.of(new).axes - ({"r"} if function in KEEPS_ROWS else set())
        for i, name in enumerate(names):
            argument = new.args[min(i, len(new.args) - 1)] if isinstance(new, ast.Call) else new
            item = argument.elts[i] if isinstance(argument, ast.Tuple) else argument
            self.book.names[name] = Facts(axes, self.book.of(item).dtype)
            if function in KEEPS_ROWS:
                self.columns.add(name)
        target = ast.Tuple([ast.Name(name) for name in names])
        return [assign(target, new)]

    def _call_statement(self, call: ast.Call) -> list[ast.stmt]:
        name = call_name(call)
        if name == "tl.debug_barrier":
            return [ast.Expr(call)]
        if name not in {"tl.store", "tl.atomic_add"}:
            raise NoSeedError(f"a kernel calls {name}, which has no plain form")
        return [ast.Expr(self.new(call))]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = _ALIASES.get(node.id, node.id)
        if name in self.full_masks:
            return ast.Constant(True)
        return self.aliases.get(name, ast.Name(name))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = self.new(node.value)
        full = isinstance(node.slice, ast.Slice) and node.slice.lower is None and node.slice.upper is None
        if full or (isinstance(value, ast.Name) and value.id in self.columns):
            return value
        return ast.Subscript(value, node.slice)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.new(node.left), self.new(node.right)
        if isinstance(node.op, ast.BitAnd):
            for one, other in ((left, right), (right, left)):
                if is_true(one):
                    return other
            pair = frozenset(side.id for side in (left, right) if isinstance(side, ast.Name))
            if pair in JOINT_MASKS:
                return ast.Name(JOINT_MASKS[pair])
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return folded(left, node.op, right)
        if not (is_full_scalar(left) and is_full_scalar(right)):
            compare = isinstance(node.op, ast.BitAnd | ast.BitOr)
            left, right = self._pair(left, right, any_integer=compare)
        if isinstance(node.op, ast.Mult) and isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        if isinstance(node.op, ast.Add) and isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        if isinstance(node.op, ast.Mult) and is_number(right, 1.0) and is_float(self.book.of(left).dtype):
            return left
        if isinstance(node.op, ast.Add) and isinstance(right, ast.Constant) and is_negative(right):
            return ast.BinOp(left, ast.Sub(), negated(right))
        if isinstance(node.op, ast.Add) and is_times_minus_one(right):
            return ast.BinOp(left, ast.Sub(), right.left)
        return ast.BinOp(left, node.op, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.new(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant):
            return negated(operand)
        return ast.UnaryOp(node.op, operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, right = _narrow(self, self.new(node.left)), _narrow(self, self.new(node.comparators[0]))
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return ast.Constant(bool(eval(ast.unparse(ast.Compare(left, node.ops, [right])))))  # noqa: S307  literals
        if not (is_full_scalar(left) and is_full_scalar(right)):
            left, right = self._pair(left, right, any_integer=True)
        if isinstance(right, ast.Constant) and right.value is False and isinstance(node.ops[0], ast.NotEq):
            return left
        return ast.Compare(left, node.ops, [right])

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """`a if x.dtype is tl.float32 else b`, decided now."""
        match node.test:
            case ast.Compare(left=ast.Attribute(value=value, attr="dtype"), ops=[ast.Is()], comparators=[wanted]):
                dtype = self.book.of(self.new(value)).dtype
                if dtype is not None:
                    return self.new(node.body if dtype == short_dtype(wanted) else node.orelse)
        raise NoSeedError(f"a kernel decides in a way without a plain form: {ast.unparse(node)[:80]}")

    def _pair(self, left: ast.expr, right: ast.expr, *, any_integer: bool) -> tuple[ast.expr, ast.expr]:
        """Two operands with constants as literals, where the other operand's dtype makes that the same."""
        left_dtype, right_dtype = self.book.of(left).dtype, self.book.of(right).dtype
        return (
            as_literal(left, right_dtype, any_integer=any_integer),
            as_literal(right, left_dtype, any_integer=any_integer),
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
            return self._method(node, node.func)
        name = call_name(node)
        owner, _, short = name.partition(".")
        if owner == "triton_helpers":
            return self._helper(node, short)
        if owner in {"libdevice", "tl_math"}:
            return self._math(node, owner, short)
        if owner == "tl":
            return self._triton(node, short)
        if owner == "float" or name.startswith("_triton_helper_fn"):
            return node
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        raise NoSeedError(f"a kernel calls {name}, which has no plain form")

    def _method(self, node: ast.Call, func: ast.Attribute) -> ast.expr:
        value = self.new(func.value)
        if func.attr == "to":
            return self._cast(value, node)
        if func.attr == "broadcast_to" and is_full_scalar(value):
            return ast.Name("xindex")
        raise NoSeedError(f"a kernel calls .{func.attr}(), which has no plain form")

    def _cast(self, value: ast.expr, node: ast.Call) -> ast.expr:
        target = short_dtype(node.args[0])
        if target is None or len(node.args) != 1:
            bitcast = any(keyword.arg == "bitcast" for keyword in node.keywords)
            if target is None or not bitcast:
                raise NoSeedError(f"a kernel casts in a way without a plain form: {ast.unparse(node)[:80]}")
        if self.book.of(value).dtype == target:
            return value
        if is_full_scalar(value) and isinstance(value, ast.Call):
            number = ast.literal_eval(value.args[1]) if isinstance(value.args[1], ast.Constant) else None
            if isinstance(number, int) and is_float(target):
                return ast.Call(value.func, [value.args[0], ast.Constant(float(number)), node.args[0]], [])
        return ast.Call(ast.Attribute(value, "to"), node.args, node.keywords)

    def _helper(self, node: ast.Call, short: str) -> ast.expr:
        args = [self.new(argument) for argument in node.args]
        if short in {"maximum", "minimum"}:
            left, right = self._pair(args[0], args[1], any_integer=True)
            if isinstance(left, ast.Constant):
                left, right = right, left
            if isinstance(right, ast.Constant) and is_float(self.book.of(left).dtype):
                right = ast.Constant(float(ast.literal_eval(right)))
            propagate = ast.keyword("propagate_nan", dotted("tl.PropagateNan.ALL"))
            keywords = [] if (self.book.of(left).dtype or "").startswith("i") else [propagate]
            return ast.Call(dotted(f"tl.{short}"), [left, right], keywords)
        if short in {"max2", "min2"}:
            return self._extreme(args[0], short[:3])
        if short in _REDUCE_BY:
            return self._reduce(args[0], _REDUCE_BY[short])
        if short == "select_one":
            masked = ast.Call(dotted("tl.where"), [args[1], args[0], ast.Constant(0)], [])
            keep = [ast.keyword("keep_dims", ast.Constant(True))] if keeps_dims(node) else []
            return ast.Call(dotted("tl.sum"), [masked], [_AXIS_ONE, *keep])
        if short == "promote_to_tensor":
            return args[0]
        if short in TRITON_HELPERS:
            return self._function(TRITON_HELPERS[short], args)
        raise NoSeedError(f"the compiler's kernel calls {short}, which the seed cannot write as plain Triton yet")

    def _extreme(self, value: ast.expr, short: str) -> ast.expr:
        if self.exact_extremes and not (self.book.of(value).dtype or "").startswith("i"):
            return self._reduce(value, "nan_maximum" if short == "max" else "nan_minimum")
        return ast.Call(dotted(f"tl.{short}"), [self._wide(value)], [_AXIS_ONE])

    def _reduce(self, value: ast.expr, combine: str) -> ast.expr:
        self.functions.add(combine)
        return ast.Call(dotted("tl.reduce"), [self._wide(value), ast.Constant(1), ast.Name(combine)], [])

    def _function(self, name: str, args: list[ast.expr]) -> ast.expr:
        self.functions.add(name)
        count = {
            "online_softmax_step": 3,
            "online_softmax_merge": 4,
            "online_softmax_finish": 2,
            "welford_step": 4,
            "welford_finish": 3,
        }
        used = args[: count.get(name, 4 if name.endswith("er_with_index") else 2)]
        if "softmax" in name or "welford" in name or "with_index" in name:
            used = [self._wide(argument, "xr") for argument in used]
        return ast.Call(ast.Name(name), used, [])

    def _math(self, node: ast.Call, owner: str, short: str) -> ast.expr:
        args = [self.new(argument) for argument in node.args]
        if short == "signbit" and is_full_scalar(args[0]) and isinstance(args[0], ast.Call):
            return ast.Constant(int(math.copysign(1.0, ast.literal_eval(args[0].args[1])) < 0))
        if short in _PLAIN_TL and self.book.of(args[0]).dtype in {"fp32", None, "i32", "i64"}:
            return ast.Call(dotted(f"tl.{_TL_NAMES.get(short, short)}"), args, [])
        if owner == "tl_math" and short in _PLAIN_TL | {"fma"}:
            return ast.Call(dotted(f"tl.{short}"), args, [])
        self.libdevice = True
        return ast.Call(dotted(f"libdevice.{short}"), args, [])

    def _triton(self, node: ast.Call, short: str) -> ast.expr:
        if short == "load":
            return self._load(node)
        if short == "broadcast_to":
            return self.new(node.args[0])
        args = [self.new(argument) for argument in node.args]
        keywords = [ast.keyword(keyword.arg, self.new(keyword.value)) for keyword in node.keywords]
        if short in {"sum", "max", "min", "reduce"} and len(args) == 2:
            return ast.Call(node.func, [self._wide(args[0])], [_AXIS_ONE])
        if short == "where":
            return self._where(node, args)
        if short == "full" and "shape" in ast.unparse(args[0]):
            return ast.Call(node.func, [ast.List([ast.Constant(1)]), args[1], dtype_expression(self.book, args[2])], [])
        if short == "full" and not is_full_scalar(node) and isinstance(args[1], ast.Constant) and args[1].value == 0:
            return ast.Call(dotted("tl.zeros"), [args[0], args[2]], [])
        if short in {"store", "atomic_add"}:
            return self._store(node, short, args, keywords)
        if short == "associative_scan":
            value = args[0]
            wide = ast.Tuple([self._wide(item) for item in value.elts]) if isinstance(value, ast.Tuple) else value
            return ast.Call(node.func, [wide, *args[1:]], keywords)
        if short in {"full", "zeros", "arange", "program_id", "range", "num_programs", "sigmoid", "sqrt_rn", "div_rn"}:
            return ast.Call(node.func, args, keywords)
        raise NoSeedError(f"a kernel calls tl.{short}, which has no plain form")

    def _where(self, node: ast.Call, args: list[ast.expr]) -> ast.expr:
        condition, first, second = args
        condition = within_row(condition)
        if is_true(condition) or self._is_zero_outside(condition, first, second):
            return first
        first, second = self._pair(first, second, any_integer=True)
        return ast.Call(node.func, [condition, first, second], [])

    def _is_zero_outside(self, condition: ast.expr, value: ast.expr, other: ast.expr) -> bool:
        """Whether the value already is 0 wherever the condition does not hold."""
        if not (isinstance(condition, ast.Name) and isinstance(value, ast.Name) and isinstance(other, ast.Constant)):
            return False
        return other.value == 0 and condition.id in self.zero_filled.get(value.id, set())

    def _load(self, node: ast.Call) -> ast.expr:
        address = self.new(node.args[0])
        keywords = []
        if len(node.args) > 1:
            keywords = mask_keyword(self.new(node.args[1]))
        for keyword in node.keywords:
            if keyword.arg == "other" and not keywords:
                continue
            keywords.append(ast.keyword(keyword.arg, keyword.value))
        return ast.Call(node.func, [tidy_address(address)], keywords)

    def _store(self, node: ast.Call, short: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        mask = mask_keyword(args[2]) if len(args) > 2 else []
        kept = [keyword for keyword in keywords if short == "atomic_add" and keyword.arg == "sem"]
        value = as_literal(args[1], None, any_integer=True)
        return ast.Call(node.func, [tidy_address(args[0]), value], mask + kept)

    def _wide(self, value: ast.expr, axes: str = "r") -> ast.expr:
        """The value spread over these axes: a reduction must see every lane."""
        missing = self.axes & set(axes) - self.book.of(value).axes
        if not missing:
            return value
        shape = ast.List([ast.Name("XBLOCK"), ast.Name("R0_BLOCK")])
        if is_full_scalar(value) and isinstance(value, ast.Call):
            return ast.Call(value.func, [shape, *value.args[1:]], [])
        return ast.Call(dotted("tl.broadcast_to"), [value, shape], [])


def _narrow(normaliser: Normaliser, node: ast.expr) -> ast.expr:
    """An index without its widening cast, which changes no comparison."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="to")) if call_name(node).endswith(".to"):
            if normaliser.book.of(value).dtype == "i32" and short_dtype(node.args[0]) == "i64":
                return value
        case ast.Name(id=name) if name in normaliser.widened:
            return normaliser.widened[name]
    return node
