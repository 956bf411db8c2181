"""State of reference and candidate: matched, then randomised on both sides.

Randomised, because weights that are baked into a source, or affine parameters that are neutral as constructed, would
otherwise pass. Constant tensors (norm weights, running statistics, zero-initialised gates) get values around their
constant; other parameters keep their distribution (shuffled, rescaled by up to 20 %). Buffers that __init__ computes
(position tables, windows) and integer and boolean ones keep their values; random ones differ by the load's secret seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.contracts import ErrorReport, TensorSpec
from services.sandbox.judge.layout import core_view
from services.sandbox.replies import Loaded, StateEntry, StateKind


@dataclass(frozen=True)
class StateMatch:
    """Which state of the reference each of the candidate's names takes, and a note for the report."""

    sources: dict[str, str]
    note: str = ""


class StateMismatch(Exception):
    """The candidate's state cannot be filled from the reference's; the report lists both."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.message)
        self.report = report


def owned_state(loaded: Loaded) -> dict[str, TensorSpec]:
    """Parameters and buffers that have memory of their own, by name."""
    return {entry.name: entry.spec for entry in loaded.state if _is_state(entry) and not entry.tied_to}


def plain_attributes(loaded: Loaded) -> list[str]:
    """Names of tensors that are neither parameters nor buffers: .to() does not move them, state_dict() lacks them."""
    return [entry.name for entry in loaded.state if entry.kind is StateKind.ATTRIBUTE]


def randomise(state: Mapping[str, Tensor], parameters: frozenset[str], seed: int) -> dict[str, Tensor]:
    """New values for the state that is worth changing, in the same layout; the rest is left out."""
    generator = torch.Generator().manual_seed(seed)
    changed = {}
    for name, tensor in state.items():
        values = _randomised(core_view(tensor).double(), name in parameters, generator) if _may_change(tensor) else None
        if values is not None:
            copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            core_view(copy).copy_(values)
            changed[name] = copy
    return changed


def parameter_names(loaded: Loaded) -> frozenset[str]:
    """Names of the parameters, tied ones included."""
    return frozenset(entry.name for entry in loaded.state if entry.kind is StateKind.PARAMETER)


def match_state(reference: Loaded, candidate: Loaded) -> StateMatch:
    """Match by name, else by order and shape. Raises StateMismatch with both lists."""
    wanted, offered = _entries(candidate), _entries(reference)
    by_name = _match_by_name(wanted, offered)
    if by_name is not None:
        return by_name
    by_order = _match_by_order(wanted, offered)
    if by_order is not None:
        return StateMatch(by_order, "state matched by order and shape: its names differ from the reference's")
    raise StateMismatch(_mismatch(wanted, offered))


def _is_state(entry: StateEntry) -> bool:
    return entry.kind in (StateKind.PARAMETER, StateKind.BUFFER)


def _entries(loaded: Loaded) -> list[StateEntry]:
    return [entry for entry in loaded.state if _is_state(entry)]


def _may_change(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(torch.isfinite(tensor).all())


def _randomised(values: Tensor, is_parameter: bool, generator: torch.Generator) -> Tensor | None:
    first = float(values.reshape(-1)[0])
    if bool((values == first).all()):
        noise = torch.empty(values.shape, dtype=values.dtype).uniform_(-0.5, 0.5, generator=generator)
        return noise * 0.5 if first == 0 else first * (1 + noise)
    if not is_parameter:
        return None
    order = torch.randperm(values.numel(), generator=generator)
    scale = float(torch.empty(()).uniform_(0.8, 1.2, generator=generator))
    return values.reshape(-1)[order].view(values.shape) * scale


def _same(wanted: StateEntry, offered: StateEntry) -> bool:
    return wanted.spec.shape == offered.spec.shape and wanted.spec.dtype == offered.spec.dtype


def _match_by_name(wanted: Sequence[StateEntry], offered: Sequence[StateEntry]) -> StateMatch | None:
    """None unless all parameters match one to one; buffers may be left out by the candidate, or be its own."""
    mine, theirs = {entry.name: entry for entry in wanted}, {entry.name: entry for entry in offered}
    alone = [entry for name, entry in (mine | theirs).items() if name not in mine or name not in theirs]
    if any(entry.kind is StateKind.PARAMETER for entry in alone):
        return None
    if not all(_same(entry, theirs[name]) for name, entry in mine.items() if name in theirs):
        return None
    note = f"buffers that only one side has: {', '.join(entry.name for entry in alone)}" if alone else ""
    return StateMatch({name: name for name in mine if name in theirs}, note)


def _match_by_order(wanted: Sequence[StateEntry], offered: Sequence[StateEntry]) -> dict[str, str] | None:
    """Parameters must pair up; buffers do if they can."""
    pairs: dict[str, str] = {}
    for kind in (StateKind.PARAMETER, StateKind.BUFFER):
        mine = [entry for entry in wanted if entry.kind is kind and not entry.tied_to]
        theirs = [entry for entry in offered if entry.kind is kind and not entry.tied_to]
        fits = len(mine) == len(theirs) and all(map(_same, mine, theirs))
        if fits:
            pairs |= {entry.name: source.name for entry, source in zip(mine, theirs, strict=True)}
        elif kind is StateKind.PARAMETER:
            return None
    return pairs


def _mismatch(wanted: Sequence[StateEntry], offered: Sequence[StateEntry]) -> ErrorReport:
    return ErrorReport(
        kind="StateMismatch",
        message="ModelNew's parameters and buffers match Model's neither by name nor by order and shape",
        detail=f"Model has:\n{_listing(offered)}\nModelNew has:\n{_listing(wanted)}",
    )


def _listing(entries: Sequence[StateEntry]) -> str:
    return "\n".join(f"  {entry.kind} {entry.name}: {entry.spec}" for entry in entries) or "  nothing"
