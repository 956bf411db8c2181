"""The operations that Triton's semantic layer asks its IR builder for, computed at once with numpy.

Overrides Triton's own interpreter builder (3.6 to 3.9), whose arrays have no program axis.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions

from . import libdevice, numeric
from .arithmetic import add_in_turn, addresses, divide, multiplication, multiply_high
from .descriptors import Descriptors
from .errors import DeviceAssertion, Diverged, NotInterpretable
from .handle import Cost, Handle
from .memory import Memory
from .numeric import Array, convert, numpy_type

# What the NVIDIA backend allows. Overflow of int32 wraps as on the GPU; the bounds check sees where that led.
_OPTIONS = InterpreterOptions(
    debug=True,
    sanitize_overflow=False,
    default_dot_input_precision="tf32",
    allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
)


def _binary(operate: Callable[..., Array]) -> Callable[..., Handle]:
    def create(self: "Builder", lhs: Handle, rhs: Handle) -> Handle:
        result = operate(lhs.data, rhs.data)
        dtype = lhs.data.dtype
        if dtype.kind == "f" or dtype == numeric.BFLOAT16:
            self.count(result)
        return Handle(result if result.dtype == dtype else result.astype(dtype), lhs.dtype)

    return create


def _comparison(operate: Callable[..., Array]) -> Callable[..., Handle]:
    def create(self: "Builder", lhs: Handle, rhs: Handle) -> Handle:
        return Handle(operate(lhs.data, rhs.data), tl.int1)

    return create


def _unary(operate: Callable[..., Array]) -> Callable[..., Handle]:
    def create(self: "Builder", argument: Handle) -> Handle:
        result = operate(argument.data)
        dtype = argument.data.dtype
        self.count(result)
        return Handle(result if result.dtype == dtype else result.astype(dtype), argument.dtype)

    return create


def _cast(self: "Builder", source: Handle, target: Any, *_: Any) -> Handle:
    return Handle(convert(source.data, numpy_type(target)), target.scalar)


def _constant(triton_type: Any) -> Callable[..., Handle]:
    dtype = numpy_type(triton_type)

    def get(self: "Builder", value: Any) -> Handle:
        return Handle(np.array([value], dtype), triton_type)

    return get


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(getattr(size, "value", size) for size in shape)


class Builder(Descriptors, InterpreterBuilder):  # type: ignore[misc]
    """Computes the programs of one batch together. The launch sets `memory`, `grid_dim` and `program_ids`."""

    memory: Memory

    def __init__(self) -> None:
        super().__init__()
        self.options = _OPTIONS
        self.codegen_fns["convert_custom_types"] = _no_custom_types
        self.program_ids: list[Array] = [np.zeros(1, np.int32)] * 3
        self.grid_dim = (1, 1, 1)
        self.largest_block = 1
        self.cost = Cost()

    # constants
    get_int1 = _constant(tl.int1)
    get_int8 = _constant(tl.int8)
    get_uint8 = _constant(tl.uint8)
    get_int16 = _constant(tl.int16)
    get_uint16 = _constant(tl.uint16)
    get_int32 = _constant(tl.int32)
    get_uint32 = _constant(tl.uint32)
    get_int64 = _constant(tl.int64)
    get_uint64 = _constant(tl.uint64)
    get_fp16 = _constant(tl.float16)
    get_bf16 = _constant(tl.bfloat16)
    get_fp32 = _constant(tl.float32)
    get_fp64 = _constant(tl.float64)

    def get_null_value(self, triton_type: Any) -> Handle:
        return Handle(np.zeros(1, numpy_type(triton_type)), triton_type.scalar)

    def get_all_ones_value(self, triton_type: Any) -> Handle:
        dtype = numpy_type(triton_type)
        value = np.ones(1, dtype) if dtype == np.bool_ else np.invert(np.zeros(1, dtype))
        return Handle(value, triton_type.scalar)

    # programs
    def create_get_program_id(self, axis: int) -> Handle:
        return Handle(self.program_ids[axis], tl.int32)

    def create_get_num_programs(self, axis: int) -> Handle:
        return Handle(np.array([self.grid_dim[axis]], np.int32), tl.int32)

    # conversions
    create_si_to_fp = create_ui_to_fp = create_fp_to_si = create_fp_to_ui = _cast
    create_fp_ext = create_fp_trunc = create_int_cast = _cast

    def create_fp_to_fp(self, source: Handle, target: Any, rounding: Any) -> Handle:
        dtype = numpy_type(target)
        if rounding == ir.ROUNDING_MODE.RTZ:
            return Handle(numeric.truncate(source.data, dtype), target.scalar)
        return Handle(convert(source.data, dtype), target.scalar)

    def create_bitcast(self, source: Handle, target: Any) -> Handle:
        return Handle(source.data.view(numpy_type(target)), target.scalar)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    # arithmetic
    create_fadd = _binary(np.add)
    create_fsub = _binary(np.subtract)
    create_fmul = create_mul = _binary(np.multiply)
    create_fdiv = create_precise_divf = create_approx_divf = _binary(np.divide)
    create_frem = _binary(np.fmod)
    create_add = _binary(lambda lhs, rhs: lhs ^ rhs if lhs.dtype == np.bool_ else lhs + rhs)
    create_sub = _binary(lambda lhs, rhs: lhs ^ rhs if lhs.dtype == np.bool_ else lhs - rhs)
    create_shl = _binary(np.left_shift)
    create_lshr = _binary(np.right_shift)
    create_and = _binary(np.bitwise_and)
    create_or = _binary(np.bitwise_or)
    create_xor = _binary(np.bitwise_xor)
    create_minsi = create_minui = create_minimumf = _binary(np.minimum)
    create_maxsi = create_maxui = create_maximumf = _binary(np.maximum)
    create_minnumf = _binary(np.fmin)
    create_maxnumf = _binary(np.fmax)
    create_sdiv = create_udiv = _binary(lambda lhs, rhs: divide(lhs, rhs)[0])
    create_srem = create_urem = _binary(lambda lhs, rhs: divide(lhs, rhs)[1])

    def create_ashr(self, lhs: Handle, rhs: Handle) -> Handle:
        signed = np.dtype(f"int{lhs.data.dtype.itemsize * 8}")
        return Handle(np.right_shift(lhs.data.view(signed), rhs.data.view(signed)).view(lhs.data.dtype), lhs.dtype)

    def create_umulhi(self, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(multiply_high(lhs.data, rhs.data), lhs.dtype)

    create_icmpSLE = create_icmpULE = create_fcmpOLE = create_fcmpULE = _comparison(np.less_equal)
    create_icmpSLT = create_icmpULT = create_fcmpOLT = create_fcmpULT = _comparison(np.less)
    create_icmpSGE = create_icmpUGE = create_fcmpOGE = create_fcmpUGE = _comparison(np.greater_equal)
    create_icmpSGT = create_icmpUGT = create_fcmpOGT = create_fcmpUGT = _comparison(np.greater)
    create_icmpEQ = create_fcmpOEQ = create_fcmpUEQ = _comparison(np.equal)
    create_icmpNE = create_fcmpONE = create_fcmpUNE = _comparison(np.not_equal)

    create_fabs = create_iabs = _unary(np.abs)
    create_fneg = _unary(np.negative)
    create_cos = _unary(np.cos)
    create_sin = _unary(np.sin)
    create_exp = _unary(np.exp)
    create_exp2 = _unary(np.exp2)
    create_log = _unary(np.log)
    create_log2 = _unary(np.log2)
    create_sqrt = create_precise_sqrt = _unary(np.sqrt)
    create_rsqrt = _unary(lambda data: 1 / np.sqrt(data))
    create_floor = _unary(np.floor)
    create_ceil = _unary(np.ceil)
    create_erf = _unary(scipy.special.erf)

    def create_clampf(self, data: Handle, low: Handle, high: Handle, propagate_nan: Any) -> Handle:
        if propagate_nan == ir.PROPAGATE_NAN.ALL:
            return Handle(np.minimum(np.maximum(data.data, low.data), high.data), data.dtype)
        return Handle(np.fmin(np.fmax(data.data, low.data), high.data), data.dtype)

    def create_select(self, condition: Handle, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(np.where(condition.data, lhs.data, rhs.data), lhs.dtype)

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        if z.data.dtype == np.float64:
            return Handle(x.data * y.data + z.data, z.dtype)
        # One rounding: the product of two floats of 24 bits or less is exact in float64.
        wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
        return Handle(wide.astype(z.data.dtype), z.dtype)

    # shapes
    def create_make_range(self, _: Any, start: int, stop: int) -> Handle:
        self._saw(stop - start)
        return Handle(np.arange(start, stop, dtype=np.int32)[None], tl.int32)

    def create_splat(self, triton_type: Any, argument: Handle) -> Handle:
        shape = _sizes(triton_type.shape)
        data = argument.data.reshape(-1, *(1,) * len(shape))
        return Handle(np.broadcast_to(data, (data.shape[0], *shape)), argument.dtype)

    def create_unsplat(self, argument: Handle) -> Handle:
        return Handle(argument.data.reshape(-1), argument.dtype)

    def create_broadcast(self, argument: Handle, shape: Sequence[Any]) -> Handle:
        sizes = _sizes(shape)
        self._saw(int(np.prod(sizes)))
        return Handle(np.broadcast_to(argument.data, (argument.data.shape[0], *sizes)), argument.dtype)

    def create_expand_dims(self, argument: Handle, axis: int) -> Handle:
        return Handle(np.expand_dims(argument.data, axis + 1), argument.dtype)

    def create_reshape(self, argument: Handle, shape: Sequence[Any], _: bool) -> Handle:
        return Handle(argument.data.reshape(argument.data.shape[0], *_sizes(shape)), argument.dtype)

    def create_trans(self, argument: Handle, order: Sequence[Any]) -> Handle:
        return Handle(np.transpose(argument.data, (0, *(axis + 1 for axis in _sizes(order)))), argument.dtype)

    def create_cat(self, lhs: Handle, rhs: Handle) -> Handle:
        rows = max(lhs.data.shape[0], rhs.data.shape[0])
        sides = [np.broadcast_to(side.data, (rows, *side.data.shape[1:])) for side in (lhs, rhs)]
        return Handle(np.concatenate(sides, axis=1), lhs.dtype)

    def create_join(self, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(np.stack(np.broadcast_arrays(lhs.data, rhs.data), axis=-1), lhs.dtype)

    def create_split(self, argument: Handle) -> tuple[Handle, Handle]:
        return Handle(argument.data[..., 0], argument.dtype), Handle(argument.data[..., 1], argument.dtype)

    def create_gather(self, source: Handle, indices: Handle, axis: int) -> Handle:
        rows = max(source.data.shape[0], indices.data.shape[0])
        data, index = (np.broadcast_to(side.data, (rows, *side.data.shape[1:])) for side in (source, indices))
        length = data.shape[axis + 1]
        if index.size and (int(index.min()) < 0 or int(index.max()) >= length):
            raise IndexError(f"tl.gather: index {int(index.max())} is outside an axis of {length} elements")
        return Handle(np.take_along_axis(data, index.astype(np.int64), axis=axis + 1), source.dtype)

    def create_histogram(self, data: Handle, bins: int, mask: Handle | None) -> Handle:
        values = data.data.astype(np.int64)
        counted = (values >= 0) & (values < bins)
        if mask is not None:
            counted = counted & mask.data
        values, counted = np.broadcast_arrays(values, counted)
        rows = values.shape[0]
        row = np.arange(rows)[:, None] * bins
        counts = np.bincount((np.where(counted, values, 0) + row)[counted], minlength=rows * bins)
        return Handle(counts.reshape(rows, bins).astype(np.int32), tl.int32)

    # matrices
    def create_dot(self, lhs: Handle, rhs: Handle, accumulator: Handle, precision: Any, _: int) -> Handle:
        rows, columns, depth = lhs.data.shape[-2], rhs.data.shape[-1], lhs.data.shape[-1]
        self._saw(max(rows * columns, rows * depth, depth * columns))
        label, prepare = multiplication(lhs.data.dtype, precision)
        product = np.matmul(prepare(lhs.data), prepare(rhs.data))
        batch = int(np.prod(lhs.data.shape[1:-2]))
        flops = 2 * rows * columns * depth * batch * self.memory.programs
        self.cost.dots[label] = self.cost.dots.get(label, 0) + flops
        total = product + accumulator.data
        return Handle(total.astype(accumulator.data.dtype), accumulator.dtype)

    def create_dot_scaled(self, *_: Any) -> Handle:
        raise NotInterpretable("tl.dot_scaled cannot run in the interpreter")

    # memory; what follows the value (cache, eviction) differs between Triton versions and changes no result
    def create_load(self, pointer: Handle, *_: Any) -> Handle:
        return self._load(pointer, None, None)

    def create_masked_load(self, pointer: Handle, mask: Handle, other: Handle | None, *_: Any) -> Handle:
        return self._load(pointer, mask.data, other.data if other is not None else None)

    def _load(self, pointer: Handle, mask: Array | None, other: Array | None) -> Handle:
        element = pointer.dtype.scalar.element_ty
        self._saw(pointer.data.size // pointer.data.shape[0])
        return Handle(self.memory.load(pointer.data, mask, other, numpy_type(element)), element)

    def create_store(self, pointer: Handle, value: Handle, *_: Any) -> None:
        self.memory.store(pointer.data, value.data, None)

    def create_masked_store(self, pointer: Handle, value: Handle, mask: Handle, *_: Any) -> None:
        self.memory.store(pointer.data, value.data, mask.data)

    def create_addptr(self, pointer: Handle, offset: Handle) -> Handle:
        element = pointer.dtype.scalar.element_ty
        itemsize = numpy_type(element).itemsize
        distance = np.multiply(offset.data, itemsize, dtype=np.int64).view(np.uint64)
        if pointer.data.shape[0] <= distance.shape[0]:
            distance += pointer.data
            return Handle(distance, pointer.dtype)
        return Handle(pointer.data + distance, pointer.dtype)

    def create_atomic_rmw(
        self, operation: Any, pointer: Handle, value: Handle, mask: Handle, sem: Any, _: Any
    ) -> Handle:
        kind = self.ir_rmw_op_to_interpreter_rmw_op[operation]
        order = self.ir_sem_to_interpreter_sem[sem]

        def operate(memory: Array, index: Array, values: tuple[Array, ...]) -> Any:
            if memory.dtype in (numeric.BFLOAT16, np.float16):
                return add_in_turn(memory, index, values[0])
            return native.atomic_rmw(kind, addresses(memory, index), values[0], np.ones(index.shape, bool), order)

        return Handle(self.memory.atomic(pointer.data, mask.data, (value.data,), operate), value.dtype)

    def create_atomic_cas(self, pointer: Handle, compare: Handle, value: Handle, sem: Any, _: Any) -> Handle:
        order = self.ir_sem_to_interpreter_sem[sem]

        def operate(memory: Array, index: Array, values: tuple[Array, ...]) -> Any:
            return native.atomic_cas(addresses(memory, index), values[1], values[0], order)

        return Handle(self.memory.atomic(pointer.data, None, (value.data, compare.data), operate), value.dtype)

    # debugging
    def create_assert(self, condition: Handle, message: str) -> None:
        self._require(condition, f"tl.device_assert failed: {message}" if message else "tl.device_assert failed")

    def create_assume(self, condition: Handle) -> None:
        self._require(condition, "tl.assume was given a false condition")

    def _require(self, condition: Handle, message: str) -> None:
        if not condition.data.all():
            row = int(np.argmin(condition.data)) // max(1, condition.data.size // condition.data.shape[0])
            raise DeviceAssertion(f"{message} (program {self.memory.program_id(row)})")

    def create_print(self, prefix: str, hexadecimal: bool, values: Sequence[Handle], _: Any) -> None:
        if self.memory.programs > 1:
            raise Diverged(np.arange(self.memory.programs))
        start = f"{self.memory.program_id(0)}{prefix}"
        for value in values:
            print(start, np.vectorize(hex)(value.data[0]) if hexadecimal else value.data[0])
        if not values:
            print(start)

    def create_barrier(self) -> None:
        """Programs run in lock-step: nothing to wait for."""

    create_grid_dependency_wait = create_grid_dependency_launch_dependents = create_barrier

    def create_extern_elementwise(
        self, _: str, __: str, symbol: str, arguments: Sequence[Handle], target: Any, ___: bool
    ) -> Handle:
        result = libdevice.compute(symbol, [argument.data for argument in arguments], numpy_type(target))
        self.count(result)
        return Handle(result, target.scalar)

    def create_inline_asm(self, *_: Any) -> Handle:
        raise NotInterpretable("tl.inline_asm_elementwise cannot run in the interpreter; write it with tl operations")

    def create_atomic_poll(self, *_: Any) -> Handle:
        raise NotInterpretable("tl.atomic_poll cannot run in the interpreter")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            raise NotInterpretable(f"the interpreter has no operation {name.removeprefix('create_')}")
        raise AttributeError(name)

    def count(self, data: Array) -> None:
        """One floating-point operation for each element and program."""
        self.cost.operations += data.size // data.shape[0] * self.memory.programs

    def _saw(self, elements: int) -> None:
        if elements > self.largest_block:
            self.largest_block = elements


def _no_custom_types(*_: Any, **__: Any) -> None:
    raise NotInterpretable("the interpreter has no float8e4b15")
