"""Input families: the same op on differently shaped *values*, so that a shortcut which fits one of them fails another.

Only floating-point leaves change. Integers and bools keep the values that `get_inputs` gave under the family's own
secret seed: labels, offsets and masks stay valid.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import torch
from torch import Tensor

from services.sandbox.judge.layout import core_view


class Family(StrEnum):
    """What is done to the floating-point inputs, in the order in which families run."""

    AS_GIVEN = "as given"
    NEGATED = "negated"
    RAMP = "ramp"
    SPIKED = "spiked"
    SHIFTED = "shifted"
    SCALED_UP = "scaled up"
    TAILS = "tails"
    PERMUTED = "permuted"
    SCALED_DOWN = "scaled down"


REQUIRED = (Family.AS_GIVEN, Family.NEGATED, Family.RAMP, Family.SPIKED)
"""Never left out to save time."""

DESCRIPTIONS: dict[Family, str] = {
    Family.AS_GIVEN: "values of get_inputs() under a secret seed",
    Family.NEGATED: "every value negated",
    Family.RAMP: "values scaled by 0.25 to 1.75 along every dimension, so no part stands for another",
    Family.SPIKED: "a few values raised to 16 times the inputs' rms",
    Family.SHIFTED: "three times the inputs' rms added",
    Family.SCALED_UP: "every value times 3",
    Family.TAILS: "magnitudes spread over 0.0001 to 16 times the given ones",
    Family.PERMUTED: "values shuffled over all positions",
    Family.SCALED_DOWN: "every value times 0.01",
}

_SPIKE = 16.0
_SHIFT = 3.0
_SPIKES = 8


def apply_family(family: Family, leaves: Sequence[Tensor], seed: int) -> None:
    """Change the values of the floating-point leaves in place; layout and dtype stay."""
    generator = torch.Generator().manual_seed(seed)
    for leaf in leaves:
        if leaf.is_floating_point() and leaf.numel() > 0:
            values = core_view(leaf)
            values.copy_(_TRANSFORMS[family](values.double(), generator))


def _rms(values: Tensor) -> Tensor:
    finite = values[torch.isfinite(values)]
    return finite.square().mean().sqrt() if finite.numel() else values.new_tensor(0.0)


def _ramp(values: Tensor, generator: torch.Generator) -> Tensor:
    dims = [dim for dim in range(values.ndim) if values.shape[dim] > 1]
    if not dims:
        return values * 1.75
    scale = torch.full(values.shape, 0.25, dtype=values.dtype)
    for dim in dims:
        shape = [1] * values.ndim
        shape[dim] = -1
        scale += torch.linspace(0, 1.5 / len(dims), values.shape[dim], dtype=values.dtype).view(shape)
    return values * scale


def _spiked(values: Tensor, generator: torch.Generator) -> Tensor:
    """Spikes at random places, at the very first and at the very last element: a partial reduction misses some."""
    flat = values.reshape(-1).clone()
    places = torch.randint(0, flat.numel(), (_SPIKES,), generator=generator)
    places = torch.cat([places, torch.tensor([0, flat.numel() - 1])])
    flat[places] = torch.where(flat[places] < 0, -1.0, 1.0).double() * _SPIKE * _rms(values)
    return flat.view(values.shape)


def _tails(values: Tensor, generator: torch.Generator) -> Tensor:
    exponents = torch.empty(values.shape, dtype=values.dtype).uniform_(-4.0, 1.2, generator=generator)
    return values * torch.pow(10.0, exponents)


def _permuted(values: Tensor, generator: torch.Generator) -> Tensor:
    order = torch.randperm(values.numel(), generator=generator)
    return values.reshape(-1)[order].view(values.shape)


_TRANSFORMS: dict[Family, Callable[[Tensor, torch.Generator], Tensor]] = {
    Family.AS_GIVEN: lambda values, _: values,
    Family.NEGATED: lambda values, _: -values,
    Family.RAMP: _ramp,
    Family.SPIKED: _spiked,
    Family.SHIFTED: lambda values, _: values + _SHIFT * _rms(values),
    Family.SCALED_UP: lambda values, _: values * 3.0,
    Family.TAILS: _tails,
    Family.PERMUTED: _permuted,
    Family.SCALED_DOWN: lambda values, _: values * 0.01,
}
