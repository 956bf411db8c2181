"""From what runners counted to roofline launches, the op's need, and kernel reports."""

import math
from collections import Counter
from collections.abc import Sequence

from services.contracts import Estimate, GpuSpec, KernelReport, TargetCompile
from services.sandbox.judge.layout import spec_bytes
from services.sandbox.judge.roofline import Launch, Need, Unit, estimate
from services.sandbox.replies import AtenCall, Forward, KernelCompile, Loaded, StateKind, Tree
from services.sandbox.replies import Launch as KernelLaunch

_SPILL_BYTES = 8
"""A spilled register of 4 bytes is written once and read once, at least."""

_DOT_UNITS = {
    "tf32": Unit.TF32,
    "tf32x3": Unit.TF32X3,
    "float32": Unit.CUDA_CORES,
    "float64": Unit.FP64,
    "bfloat16": Unit.HALF,
    "float16": Unit.HALF,
}


def aten_launches(calls: Sequence[AtenCall]) -> list[Launch]:
    """Eager: every call that moves bytes is one launch; views move none."""
    return [
        Launch(call.bytes_read + call.bytes_written, {_aten_unit(call): call.flops} if call.flops else {}, call.rows)
        for call in calls
        if call.bytes_read + call.bytes_written > 0
    ]


def kernel_launches(launches: Sequence[KernelLaunch], compiled: Sequence[KernelCompile]) -> list[Launch]:
    """Generated kernels as they ran. ValueError where their bytes were not counted.

    Grid and spills of an autotuned kernel are not used: what ran here need not be the configuration that wins there.
    """
    fixed = {kernel.kernel: kernel for kernel in compiled if kernel.configurations == 1}
    return [_kernel_launch(launch, fixed.get(launch.kernel)) for launch in launches]


def need_of(inputs: Tree, loaded: Loaded, outputs: Tree, calls: Sequence[AtenCall]) -> Need:
    """Every input, parameter and buffer read once, every output written once, and the reference's FLOPs."""
    moved = tree_bytes(inputs) + state_bytes(loaded) + tree_bytes(outputs)
    flops: Counter[Unit] = Counter()
    for call in calls:
        flops[_exact_unit(call)] += call.flops
    return Need(moved, dict(flops))


def predict(need: Need, reference: Sequence[AtenCall], candidate: Sequence[Launch], spec: GpuSpec) -> Estimate:
    """Eager against candidate on the target. ValueError where there is nothing to compare.

    The need is cut to what either side really moved: an op may read only some rows of a table.
    """
    eager = aten_launches(reference)
    if not eager:
        raise ValueError("the op moves no bytes: eager is free of charge")
    moved = min(need.bytes_moved, *(sum(item.bytes_moved for item in side) for side in (eager, candidate)))
    return estimate(eager, candidate, Need(moved, need.flops), spec)


def refuse_impossible_counts(candidate: Sequence[Launch], reference: Sequence[AtenCall], outputs: Tree) -> None:
    """ValueError where the candidate moved less than the outputs hold: its process may have forged the counts."""
    moved = sum(launch.bytes_moved for launch in candidate)
    least = min(tree_bytes(outputs), sum(call.bytes_read + call.bytes_written for call in reference))
    if moved < least:
        raise ValueError(f"{moved} bytes were counted, and the outputs alone hold {least}: the counts cannot be right")


def refuse_other_launches(ran: Sequence[KernelLaunch], compiled: Sequence[KernelCompile]) -> None:
    """ValueError where another process, for the target, launched otherwise: what was judged is not what would run.

    Grids of autotuned kernels may differ: the configuration need not be the same.
    """
    here, there = Counter(launch.kernel for launch in ran), Counter[str]()
    for kernel in compiled:
        there[kernel.kernel] += kernel.launches
    if here != there:
        raise ValueError(f"forward launched {_listed(here)} here, and {_listed(there)} when it ran for the target")
    grids = {(launch.kernel, *launch.grid) for launch in ran}
    for kernel in compiled:
        if kernel.configurations == 1 and (kernel.kernel, *kernel.grid) not in grids:
            raise ValueError(f"{kernel.kernel} was launched for the target with another grid, {tuple(kernel.grid)}")


def kernel_reports(forward: Forward, compiled: Sequence[KernelCompile]) -> list[KernelReport]:
    """One report for each generated kernel that ran, its launches summed up."""
    by_name: dict[str, list[KernelLaunch]] = {}
    for launch in forward.launches:
        by_name.setdefault(launch.kernel, []).append(launch)
    targets = {kernel.kernel: kernel for kernel in compiled}
    return [_report(name, launches, targets.get(name)) for name, launches in by_name.items()]


def library_calls(forward: Forward) -> dict[str, int]:
    """ATen calls of the candidate that moved bytes: its library part."""
    calls = [call.name for call in forward.aten or [] if call.bytes_read + call.bytes_written > 0]
    return dict(sorted(Counter(calls).items()))


def tree_bytes(tree: Tree) -> int:
    """Stored bytes of all leaves."""
    return sum(spec_bytes(leaf.spec) for leaf in tree.leaves)


def state_bytes(loaded: Loaded) -> int:
    """Bytes of parameters and buffers, tied ones once."""
    kinds = (StateKind.PARAMETER, StateKind.BUFFER)
    return sum(spec_bytes(entry.spec) for entry in loaded.state if entry.kind in kinds and not entry.tied_to)


def _aten_unit(call: AtenCall) -> Unit:
    """The unit that eager uses by PyTorch's defaults."""
    if call.matmul and call.dtype == "float32" and "conv" in call.name:
        return Unit.TF32
    return _exact_unit(call)


def _exact_unit(call: AtenCall) -> Unit:
    """The unit that keeps the dtype's accuracy."""
    if call.dtype == "float64":
        return Unit.FP64
    return Unit.HALF if call.matmul and call.dtype in ("bfloat16", "float16") else Unit.CUDA_CORES


def _kernel_launch(launch: KernelLaunch, compiled: KernelCompile | None) -> Launch:
    if launch.bytes_read is None or launch.bytes_written is None:
        raise ValueError(f"the bytes of kernel {launch.kernel} were not counted")
    flops: Counter[Unit] = Counter()
    flops[_DOT_UNITS.get(launch.dot_dtype, Unit.HALF)] += launch.dot_flops or 0
    flops[Unit.CUDA_CORES] += launch.flops or 0
    moved = launch.bytes_read + launch.bytes_written
    if compiled is None:
        return Launch(moved, dict(flops))
    programs = math.prod(launch.grid)
    threads = programs * compiled.num_warps * 32
    return Launch(moved, dict(flops), programs, spilled_bytes=compiled.spills * threads * _SPILL_BYTES)


def _report(name: str, launches: Sequence[KernelLaunch], compiled: KernelCompile | None) -> KernelReport:
    first = launches[0]
    return KernelReport(
        name=name,
        line=first.line,
        launches=len(launches),
        grid=first.grid,
        constants=first.constants,
        bytes_read=_total([launch.bytes_read for launch in launches]),
        bytes_written=_total([launch.bytes_written for launch in launches]),
        bytes_requested=_total([launch.bytes_requested for launch in launches]),
        flops=_total([launch.dot_flops for launch in launches]),
        compiled=_target_compile(compiled) if compiled else None,
    )


def _listed(launches: Counter[str]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in sorted(launches.items()))


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _target_compile(kernel: KernelCompile) -> TargetCompile:
    return TargetCompile(
        registers=kernel.registers,
        spills=kernel.spills,
        shared_bytes=kernel.shared_bytes,
        num_warps=kernel.num_warps,
        num_stages=kernel.num_stages,
        features=kernel.features,
        configurations=kernel.configurations,
        seconds=kernel.seconds,
    )
