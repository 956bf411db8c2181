"""CUDA's libdevice functions, computed with numpy and scipy.

Triton's own table in `triton.language.extra.cuda.libdevice` chooses the symbol by the arguments' types and refuses the
others, as its compiler does. Names are those of NVIDIA's libdevice user's guide.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special as special

from .errors import NotInterpretable, UnsupportedLanguage
from .numeric import Array, convert

Function = Callable[..., Any]


def prepare(bind: Callable[[Function], Function]) -> None:
    """Makes the library's functions callable from interpreted kernels; `bind` gives them the semantic layer."""
    from triton.language import core
    from triton.language.extra import libdevice as dispatching
    from triton.language.extra.cuda import libdevice as cuda

    for name in dir(cuda):
        member = getattr(cuda, name)
        if core.is_builtin(member):
            function = _explained(name, bind(member))
            setattr(cuda, name, function)
            setattr(dispatching, name, function)
    for name, member in list(vars(dispatching).items()):
        if inspect.isfunction(member) and member.__module__ == dispatching.__name__:
            setattr(dispatching, name, _missing(name))


def compute(symbol: str, arguments: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """The value of libdevice's `symbol`, e.g. "__nv_tanhf"."""
    return convert(np.asarray(_function(symbol)(*arguments)), dtype)


def _explained(name: str, function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KeyError as error:
            raise TypeError(f"libdevice.{name} has no version for arguments of type {error.args[0]}") from None

    return call


def _missing(name: str) -> Function:
    def call(*_: Any, **__: Any) -> Any:
        raise UnsupportedLanguage(f"libdevice.{name} does not exist for NVIDIA GPUs")

    return call


@functools.cache
def _function(symbol: str) -> Function:
    name = symbol.removeprefix("__nv_")
    # A trailing f or d names the precision of a function that exists in both.
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d"), name.removeprefix("u")):
        if candidate in _FUNCTIONS:
            return _FUNCTIONS[candidate]
    if match := re.fullmatch(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(r[nzdu])", name):
        return _conversion(*match.groups())
    if match := re.fullmatch(r"[fd]?(fmaf|fma|div|rcp|sqrt|rsqrt|add|sub|mul)_(r[nzdu])", name):
        return _rounded(match[1].removesuffix("f") if match[1] == "fmaf" else match[1], match[2])
    raise NotInterpretable(f"the interpreter has no libdevice function {symbol}")


def _rounded(name: str, mode: str) -> Function:
    operate = _ARITHMETIC[name]

    def call(*arguments: Array) -> Array:
        if arguments[0].dtype != np.float32:
            if mode == "rn":
                return np.asarray(operate(*arguments))
            raise NotInterpretable(f"the interpreter rounds float64 to nearest only, not {name}_{mode}")
        exact = operate(*(argument.astype(np.float64) for argument in arguments))
        return _to_float32(np.asarray(exact), mode)

    return call


def _conversion(source: str, target: str, mode: str) -> Function:
    unsigned = {"uint": np.uint32, "ull": np.uint64}
    integers: dict[str, Any] = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}

    def call(argument: Array) -> Any:
        # Triton passes unsigned numbers as signed ones of the same bits.
        value = argument.view(unsigned[source]) if source in unsigned else argument
        if target in integers:
            whole = convert(_ROUNDING[mode](value), np.dtype(integers[target]))
            return whole.view(f"int{whole.dtype.itemsize * 8}")
        return _to_float32(value.astype(np.float64), mode) if target == "float" else value.astype(np.float64)

    return call


def _to_float32(exact: Array, mode: str) -> Array:
    nearest = exact.astype(np.float32)
    if mode == "rn":
        return nearest
    above, below = nearest.astype(np.float64) > exact, nearest.astype(np.float64) < exact
    up = {"ru": below, "rd": np.zeros_like(below), "rz": below & (exact < 0)}[mode]
    down = {"ru": np.zeros_like(above), "rd": above, "rz": above & (exact > 0)}[mode]
    step = np.where(up, np.float32(np.inf), np.float32(-np.inf))
    return np.where(up | down, np.nextafter(nearest, step), nearest)


def _unsigned(data: Array) -> Array:
    return data.view(f"uint{data.dtype.itemsize * 8}")


def _bit_length(data: Array) -> Array:
    wide = _unsigned(data).astype(np.uint64)
    high, low = wide >> np.uint64(32), wide & np.uint64(2**32 - 1)
    return np.where(high != 0, np.frexp(high.astype(np.float64))[1] + 32, np.frexp(low.astype(np.float64))[1])


def _reversed_bits(data: Array) -> Array:
    raw = np.ascontiguousarray(_unsigned(data)).view(np.uint8).reshape(*data.shape, data.dtype.itemsize)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., ::-1]
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(data.dtype).reshape(data.shape)


def _multiply_high(lhs: Array, rhs: Array) -> Any:
    wide = np.int64 if lhs.dtype == np.int32 else np.uint64
    if lhs.dtype.itemsize == 8:
        product = np.vectorize(lambda a, b: (int(a) * int(b)) >> 64, otypes=[object])(lhs, rhs)
        return product.astype(lhs.dtype)
    return (lhs.astype(wide) * rhs.astype(wide)) >> wide(32)


def _low24(data: Array) -> Any:
    if data.dtype.kind == "u":
        return data & np.uint32(0xFFFFFF)
    return (data << np.int32(8)) >> np.int32(8)


def _permuted_bytes(first: Array, second: Array, selector: Array) -> Any:
    pool = _unsigned(first).astype(np.uint64) | (_unsigned(second).astype(np.uint64) << np.uint64(32))
    result = np.zeros(np.broadcast_shapes(pool.shape, selector.shape), np.uint32)
    for place in range(4):
        chosen = (_unsigned(selector).astype(np.uint64) >> np.uint64(4 * place)) & np.uint64(7)
        byte = (pool >> (chosen * np.uint64(8))) & np.uint64(0xFF)
        result |= (byte << np.uint64(8 * place)).astype(np.uint32)
    return result.view(np.int32)


def _round_half_away(data: Array) -> Any:
    return np.trunc(data + np.copysign(np.asarray(0.5).astype(data.dtype), data))


def _find_first_set(data: Array) -> Any:
    bits = _unsigned(data)
    return _bit_length(bits & (~bits + np.ones((), bits.dtype)))


def _power_by_integer(base: Array, exponent: Array) -> Any:
    return np.power(base, exponent.astype(base.dtype))


_ROUNDING: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}

_ARITHMETIC: dict[str, Function] = {
    "fma": lambda x, y, z: x * y + z,
    "div": np.divide,
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
}

_FUNCTIONS: dict[str, Function] = {
    # integers
    "clz": lambda x: x.dtype.itemsize * 8 - _bit_length(x),
    "clzll": lambda x: x.dtype.itemsize * 8 - _bit_length(x),
    "popc": lambda x: np.bitwise_count(_unsigned(x)),
    "popcll": lambda x: np.bitwise_count(_unsigned(x)),
    "ffs": _find_first_set,
    "ffsll": _find_first_set,
    "brev": _reversed_bits,
    "brevll": _reversed_bits,
    "byte_perm": _permuted_bytes,
    "mulhi": _multiply_high,
    "mul64hi": _multiply_high,
    "mul24": lambda x, y: _low24(x) * _low24(y),
    "sad": lambda x, y, z: np.where(x > y, x - y, y - x) + z,
    "hadd": lambda x, y: (x.astype(np.int64) + y) >> 1,
    "rhadd": lambda x, y: (x.astype(np.int64) + y + 1) >> 1,
    "abs": np.abs,
    "llabs": np.abs,
    # bits of floats
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.int32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "double2loint": lambda x: (x.view(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32),
    "double2hiint": lambda x: (x.view(np.int64) >> 32).astype(np.int32),
    "hiloint2double": lambda hi, lo: ((hi.astype(np.int64) << 32) | lo.view(np.uint32)).view(np.float64),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": lambda x, n: np.ldexp(x, n),
    "scalbn": lambda x, n: np.ldexp(x, n),
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "logb": lambda x: (np.frexp(x)[1] - 1).astype(x.dtype),
    # rounding
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "round": _round_half_away,
    "llround": _round_half_away,
    "fmod": np.fmod,
    "remainder": lambda x, y: x - np.rint(x / y) * y,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "fabs": np.abs,
    "fma": lambda x, y, z: x.astype(np.float64) * y + z,
    "fast_fdivide": np.divide,
    # powers and logarithms
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rcp64h": lambda x: 1 / x,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(np.asarray(10).astype(x.dtype), x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "pow": np.power,
    "powi": _power_by_integer,
    "hypot": np.hypot,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": lambda *v: np.sqrt(sum(x * x for x in v)),
    "norm4d": lambda *v: np.sqrt(sum(x * x for x in v)),
    "rnorm3d": lambda *v: 1 / np.sqrt(sum(x * x for x in v)),
    "rnorm4d": lambda *v: 1 / np.sqrt(sum(x * x for x in v)),
    # trigonometry
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sinpi": special.sinpi if hasattr(special, "sinpi") else lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cospi": special.cospi if hasattr(special, "cospi") else lambda x: np.cos(np.pi * np.fmod(x, 2)),
    # the fast variants are less exact on the GPU
    "fast_sin": np.sin,
    "fast_cos": np.cos,
    "fast_tan": np.tan,
    "fast_tanh": np.tanh,
    "fast_exp": np.exp,
    "fast_exp10": lambda x: np.power(np.float32(10), x),
    "fast_log": np.log,
    "fast_log2": np.log2,
    "fast_log10": np.log10,
    "fast_pow": np.power,
    # special functions
    "erf": special.erf,
    "erfc": special.erfc,
    "erfcx": special.erfcx,
    "erfinv": special.erfinv,
    "erfcinv": special.erfcinv,
    "normcdf": special.ndtr,
    "normcdfinv": special.ndtri,
    "lgamma": special.gammaln,
    "tgamma": special.gamma,
    "j0": special.j0,
    "j1": special.j1,
    "y0": special.y0,
    "y1": special.y1,
    "jn": special.jn,
    "yn": special.yn,
    "cyl_bessel_i0": special.i0,
    "cyl_bessel_i1": special.i1,
}
