"""Facts about the GPUs that a kernel can be made for. Figures are the vendors' published ones."""

from services.contracts.base import Message


class GpuSpec(Message):
    """One kind of GPU. Peaks are dense, without sparsity."""

    name: str
    title: str
    architecture: str
    compute_capability: int
    """Major*10 + minor, e.g. 90 for Hopper."""
    sm_count: int
    memory_gb: float
    bandwidth_gbps: float
    """Device memory bandwidth in 10^9 bytes/s."""
    l2_bytes: int
    shared_memory_bytes: int
    """Largest dynamic shared memory of one block (opt-in)."""
    registers_per_sm: int = 65536
    fp32_tflops: float
    """CUDA cores."""
    tf32_tflops: float
    bf16_tflops: float
    """Tensor cores, bf16 and fp16 with fp32 accumulation."""
    fp64_tflops: float
    launch_us: float = 2.0
    """Cost of one kernel launch seen by a stream that is never empty, in microseconds; 1.8 measured on an H200."""


TARGETS: dict[str, GpuSpec] = {
    spec.name: spec
    for spec in (
        GpuSpec(
            name="h200", title="NVIDIA H200 SXM", architecture="Hopper", compute_capability=90, sm_count=132,
            memory_gb=141, bandwidth_gbps=4800, l2_bytes=50 << 20, shared_memory_bytes=232448,
            fp32_tflops=67, tf32_tflops=495, bf16_tflops=989, fp64_tflops=34,
        ),
        GpuSpec(
            name="h100", title="NVIDIA H100 SXM", architecture="Hopper", compute_capability=90, sm_count=132,
            memory_gb=80, bandwidth_gbps=3350, l2_bytes=50 << 20, shared_memory_bytes=232448,
            fp32_tflops=67, tf32_tflops=495, bf16_tflops=989, fp64_tflops=34,
        ),
        GpuSpec(
            name="a100", title="NVIDIA A100 SXM 80 GB", architecture="Ampere", compute_capability=80, sm_count=108,
            memory_gb=80, bandwidth_gbps=2039, l2_bytes=40 << 20, shared_memory_bytes=166912,
            fp32_tflops=19.5, tf32_tflops=156, bf16_tflops=312, fp64_tflops=9.7,
        ),
        GpuSpec(
            name="b200", title="NVIDIA B200", architecture="Blackwell", compute_capability=100, sm_count=148,
            memory_gb=180, bandwidth_gbps=8000, l2_bytes=126 << 20, shared_memory_bytes=232448,
            fp32_tflops=75, tf32_tflops=1100, bf16_tflops=2250, fp64_tflops=37,
        ),
    )
}  # fmt: skip


def target_spec(name: str) -> GpuSpec:
    """The facts about one target GPU, by its name (case does not matter).

    Raises ValueError naming the known targets.
    """
    try:
        return TARGETS[name.lower()]
    except KeyError:
        raise ValueError(f"unknown target GPU {name!r}: choose one of {', '.join(TARGETS)}") from None
