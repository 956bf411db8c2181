"""Roofline prediction for a target GPU that is not here. Every number is predicted, none is measured.

One launch takes max(memory time, compute time) + launch cost; launches of one stream follow each other.

- memory time: distinct bytes over the device's bandwidth. The L2 cache is taken as cold when a forward starts and as
  holding everything afterwards in launches that touch at most half of it: in those, the share of the traffic that is
  re-reading (all traffic less what the op must move at least once) goes at L2 bandwidth, about 42 GB/s per SM.
- a grid of fewer programs than SMs draws its share of bandwidth and peak. Eager's row-wise kernels (softmax, layer
  norm) have one block for each row; other grids of eager follow the elements.
- spilled registers are written and read once more, in the caches.
- compute time: FLOPs over the dense peak of the unit that does them. Eager's float32 products run on CUDA cores, as
  PyTorch's default `allow_tf32 = False` for matmul has it, its float32 convolutions on tf32 tensor cores, as cuDNN's
  default has it. Three-product tf32 ("tf32x3") counts three tf32 products.

Not modelled: occupancy, bank conflicts, instruction mix, tails of the last wave, and that eager's softmax and layer
norm read their input more than once. Measured on an H200 with a cold cache: copies reach 4.2 of 4.8 TB/s, float32
products 52 of 67 TFLOP/s, launches of one stream follow each other after 1.8 µs. Neither side quite reaches the peaks,
so the ratio of two predictions is better than each of them.

Six candidates of tests/cases, eager over candidate, predicted and measured on that H200: relu 0.99 and 1.02, cross
entropy 1.03 and 1.33, softmax of 16 long rows 1.00 and 0.87, mean squared error 1.42 and 1.74, spilling RMS norm 0.56
and 0.46, bf16 linear and GELU 0.83 and 0.78.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.contracts import Estimate, GpuSpec

_L2_GBPS_PER_SM = 42.0


class Unit(StrEnum):
    """What does the arithmetic."""

    CUDA_CORES = "fp32 CUDA cores"
    TF32 = "tf32 tensor cores"
    TF32X3 = "tf32 tensor cores, three products"
    HALF = "16-bit tensor cores"
    FP64 = "fp64"


@dataclass(frozen=True)
class Launch:
    """Work of one launch: distinct bytes read and written, FLOPs by unit, and programs where the grid is known."""

    bytes_moved: int
    flops: Mapping[Unit, int] = field(default_factory=dict)
    programs: int | None = None
    spilled_bytes: int = 0
    """Traffic of registers that did not fit; it stays in the caches."""


@dataclass(frozen=True)
class Need:
    """What any implementation must do: bytes of inputs, state and outputs once, and the op's FLOPs by unit."""

    bytes_moved: int
    flops: Mapping[Unit, int]


def peak_flops(spec: GpuSpec, unit: Unit) -> float:
    """Dense peak of a unit in FLOP/s."""
    tflops = {
        Unit.CUDA_CORES: spec.fp32_tflops,
        Unit.TF32: spec.tf32_tflops,
        Unit.TF32X3: spec.tf32_tflops / 3,
        Unit.HALF: spec.bf16_tflops,
        Unit.FP64: spec.fp64_tflops,
    }
    return tflops[unit] * 1e12


def forward_us(launches: Sequence[Launch], need: Need, spec: GpuSpec) -> float:
    """Predicted time of one forward in microseconds: the launches one after another."""
    return sum(_launch_us(launch, _compulsory_share(launches, need), spec) for launch in launches)


def floor_us(need: Need, spec: GpuSpec) -> float:
    """Least possible time in microseconds: one launch that moves and computes only what must be."""
    compute = sum(flops / peak_flops(spec, _fastest(unit, spec)) for unit, flops in need.flops.items())
    return max(need.bytes_moved / (spec.bandwidth_gbps * 1e9), compute) * 1e6 + spec.launch_us


def bound_of(launches: Sequence[Launch], need: Need, spec: GpuSpec) -> str:
    """What most of the predicted time goes to: "memory", "compute" or "launch"."""
    share = _compulsory_share(launches, need)
    spent = {"memory": 0.0, "compute": 0.0, "launch": spec.launch_us * len(launches)}
    for launch in launches:
        memory, compute = _memory_us(launch, share, spec), _compute_us(launch, spec)
        spent["memory" if memory >= compute else "compute"] += max(memory, compute)
    return max(spent, key=lambda name: spent[name])


def estimate(reference: Sequence[Launch], candidate: Sequence[Launch], need: Need, spec: GpuSpec) -> Estimate:
    """Predict eager and candidate on the target. `reference` and `candidate` must hold at least one launch each."""
    bound = bound_of(candidate, need, spec)
    reference_us, candidate_us = forward_us(reference, need, spec), forward_us(candidate, need, spec)
    floor = floor_us(need, spec)
    return Estimate(
        target=spec.name,
        reference_us=reference_us,
        candidate_us=candidate_us,
        floor_us=floor,
        bound=bound,
        candidate_bytes=_bytes(candidate),
        reference_bytes=_bytes(reference),
        candidate_launches=len(candidate),
        reference_launches=len(reference),
        sentence=_sentence(reference, candidate, need, bound, candidate_us / floor),
    )


def describe_bytes(count: float) -> str:
    """A size for a person, in decimal units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _sentence(reference: Sequence[Launch], candidate: Sequence[Launch], need: Need, bound: str, slack: float) -> str:
    moved = _bytes(candidate)
    least = f", {moved / need.bytes_moved:.2g}× the least possible" if need.bytes_moved else ""
    return (
        f"predicted {bound}-bound: moves {describe_bytes(moved)}{least}, in {_launches(candidate)}; "
        f"eager moves {describe_bytes(_bytes(reference))} in {_launches(reference)}; "
        f"{slack:.2g}× the time of the roofline floor"
    )


def _launches(launches: Sequence[Launch]) -> str:
    return "1 launch" if len(launches) == 1 else f"{len(launches)} launches"


def _bytes(launches: Sequence[Launch]) -> int:
    return sum(launch.bytes_moved for launch in launches)


def _compulsory_share(launches: Sequence[Launch], need: Need) -> float:
    """The share of all traffic that no cache can save, because nothing was read before."""
    moved = _bytes(launches)
    return min(1.0, need.bytes_moved / moved) if moved else 1.0


def _launch_us(launch: Launch, compulsory: float, spec: GpuSpec) -> float:
    return max(_memory_us(launch, compulsory, spec), _compute_us(launch, spec)) + spec.launch_us


def _memory_us(launch: Launch, compulsory: float, spec: GpuSpec) -> float:
    device = spec.bandwidth_gbps * 1e9
    cache = max(device, spec.sm_count * _L2_GBPS_PER_SM * 1e9)
    cold = compulsory if launch.bytes_moved <= spec.l2_bytes / 2 else 1.0
    seconds = launch.bytes_moved * (cold / device + (1 - cold) / cache) + launch.spilled_bytes / cache
    return seconds * 1e6 / _occupied(launch, spec)


def _compute_us(launch: Launch, spec: GpuSpec) -> float:
    seconds = sum(flops / peak_flops(spec, unit) for unit, flops in launch.flops.items())
    return seconds * 1e6 / _occupied(launch, spec)


def _occupied(launch: Launch, spec: GpuSpec) -> float:
    """The share of the GPU that the grid can keep busy."""
    if launch.programs is None:
        return 1.0
    return min(1.0, max(launch.programs, 1) / spec.sm_count)


def _fastest(unit: Unit, spec: GpuSpec) -> Unit:
    """The quickest unit that keeps the accuracy of `unit`: float32 products may be done as three tf32 products."""
    if unit is Unit.CUDA_CORES:
        return max(Unit.CUDA_CORES, Unit.TF32X3, key=lambda option: peak_flops(spec, option))
    return unit
