"""Small jit functions that a rewritten kernel may call; each is printed into the file that needs it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceFunction:
    """Source of one jit function and the others that it calls."""

    source: str
    needs: tuple[str, ...] = ()


_ONLINE_SOFTMAX_STEP = '''
@triton.jit
def online_softmax_step(running_max, running_sum, x):
    """Fold one tile into each lane's running maximum and its running sum of exponentials."""
    new_max = tl.maximum(running_max, x, propagate_nan=tl.PropagateNan.ALL)
    unseen = new_max == float("-inf")
    rescale = tl.where(unseen, 1.0, tl.exp(running_max - new_max))
    return new_max, running_sum * rescale + tl.where(unseen, 1.0, tl.exp(x - new_max))
'''

_ONLINE_SOFTMAX_FINISH = '''
@triton.jit
def online_softmax_finish(running_max, running_sum):
    """Maximum of each row, and the row's sum of exp(x - maximum)."""
    row_max = tl.max(running_max, axis=1)[:, None]
    shifted = tl.where(row_max == float("-inf"), 0.0, running_max - row_max)
    row_sum = tl.sum(running_sum * tl.exp(shifted), axis=1)[:, None]
    return row_max, row_sum
'''

_ONLINE_SOFTMAX_MERGE = '''
@triton.jit
def online_softmax_merge(max_a, sum_a, max_b, sum_b):
    """Maximum and sum of exponentials of two parts of a row taken together."""
    new_max = tl.maximum(max_a, max_b, propagate_nan=tl.PropagateNan.ALL)
    unseen = new_max == float("-inf")
    rescale_a = tl.where(unseen, 1.0, tl.exp(max_a - new_max))
    rescale_b = tl.where(unseen, 1.0, tl.exp(max_b - new_max))
    return new_max, sum_a * rescale_a + sum_b * rescale_b
'''

_WELFORD_STEP = '''
@triton.jit
def welford_step(x, mean, m2, count):
    """Fold one tile into each lane's mean and sum of squared deviations."""
    new_count = count + 1
    delta = x - mean
    new_mean = mean + delta / new_count
    return new_mean, m2 + delta * (x - new_mean), new_count
'''

_WELFORD_COMBINE = '''
@triton.jit
def welford_combine(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Mean, sum of squared deviations and count of two sets taken together."""
    delta = tl.where(mean_a == mean_b, 0.0, mean_b - mean_a)
    count = count_a + count_b
    share_b = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * share_b, m2_a + m2_b + delta * delta * count_a * share_b, count
'''

_WELFORD_FINISH = '''
@triton.jit
def welford_finish(mean, m2, count):
    """Mean, sum of squared deviations and count of each row."""
    mean, m2, count = tl.reduce((mean, m2, count), 1, welford_combine)
    return mean[:, None], m2[:, None], count[:, None]
'''

_NAN_MAXIMUM = '''
@triton.jit
def nan_maximum(a, b):
    """The larger value; NaN wins, as in torch."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
'''

_NAN_MINIMUM = '''
@triton.jit
def nan_minimum(a, b):
    """The smaller value; NaN wins, as in torch."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
'''

_MULTIPLY = '''
@triton.jit
def multiply(a, b):
    """The product of two partial products."""
    return a * b
'''

_EITHER = '''
@triton.jit
def either(a, b):
    """Whether one of two conditions holds."""
    return a | b
'''

_WITH_INDEX = '''
@triton.jit
def {name}(value_a, index_a, value_b, index_b):
    """The {adjective} value with its index: NaN wins, then the lower index, as in torch."""
    nan_a, nan_b = value_a != value_a, value_b != value_b
    equal = (value_a == value_b) | (nan_a & nan_b)
    take_a = (value_a {sign} value_b) | (nan_a & ~nan_b) | (equal & (index_a < index_b))
    return tl.where(take_a, value_a, value_b), tl.where(take_a, index_a, index_b)
'''

_REDUCE_WITH_INDEX = '''
@triton.jit
def {name}(value, index):
    """The {adjective} value of each row with its index."""
    value, index = tl.reduce((value, index), 1, {combine})
    return value[:, None], index[:, None]
'''

_FLOOR_DIVIDE = '''
@triton.jit
def floor_divide(a, b):
    """Integer division rounded down; Triton's own rounds towards zero."""
    quotient = a // b
    rounded = tl.where(a % b != 0, quotient - 1, quotient)
    return tl.where((a < 0) != (b < 0), rounded, quotient)
'''

_FLOOR_REMAINDER = '''
@triton.jit
def floor_remainder(a, b):
    """Remainder with the sign of the divisor; Triton's own has the sign of the dividend."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
'''

FUNCTIONS: dict[str, DeviceFunction] = {
    "online_softmax_step": DeviceFunction(_ONLINE_SOFTMAX_STEP),
    "online_softmax_merge": DeviceFunction(_ONLINE_SOFTMAX_MERGE),
    "online_softmax_finish": DeviceFunction(_ONLINE_SOFTMAX_FINISH),
    "welford_step": DeviceFunction(_WELFORD_STEP),
    "welford_combine": DeviceFunction(_WELFORD_COMBINE),
    "welford_finish": DeviceFunction(_WELFORD_FINISH, ("welford_combine",)),
    "nan_maximum": DeviceFunction(_NAN_MAXIMUM),
    "nan_minimum": DeviceFunction(_NAN_MINIMUM),
    "multiply": DeviceFunction(_MULTIPLY),
    "either": DeviceFunction(_EITHER),
    "larger_with_index": DeviceFunction(_WITH_INDEX.format(name="larger_with_index", adjective="larger", sign=">")),
    "smaller_with_index": DeviceFunction(_WITH_INDEX.format(name="smaller_with_index", adjective="smaller", sign="<")),
    "largest_with_index": DeviceFunction(
        _REDUCE_WITH_INDEX.format(name="largest_with_index", adjective="largest", combine="larger_with_index"),
        ("larger_with_index",),
    ),
    "smallest_with_index": DeviceFunction(
        _REDUCE_WITH_INDEX.format(name="smallest_with_index", adjective="smallest", combine="smaller_with_index"),
        ("smaller_with_index",),
    ),
    "floor_divide": DeviceFunction(_FLOOR_DIVIDE),
    "floor_remainder": DeviceFunction(_FLOOR_REMAINDER),
}

TRITON_HELPERS = {
    "online_softmax_combine": "online_softmax_step",
    "online_softmax_combine_with_sum": "online_softmax_merge",
    "online_softmax_reduce": "online_softmax_finish",
    "welford_reduce": "welford_step",
    "welford": "welford_finish",
    "max_with_index": "largest_with_index",
    "min_with_index": "smallest_with_index",
    "maximum_with_index": "larger_with_index",
    "minimum_with_index": "smaller_with_index",
    "div_floor_integer": "floor_divide",
    "remainder_integer": "floor_remainder",
}
"""Names of Inductor's own device functions -> ours for the same purpose."""


def needed_functions(names: set[str]) -> list[str]:
    """The functions with those that they call, callees first."""
    ordered: list[str] = []

    def add(name: str) -> None:
        for callee in FUNCTIONS[name].needs:
            add(callee)
        if name not in ordered:
            ordered.append(name)

    for name in sorted(names):
        add(name)
    return ordered
