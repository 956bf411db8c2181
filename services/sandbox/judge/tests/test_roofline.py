import pytest

from services.contracts import target_spec
from services.sandbox.judge.roofline import Launch, Need, Unit, bound_of, describe_bytes, estimate, floor_us, forward_us

H200 = target_spec("h200")
GB = 10**9


def test_a_large_copy_takes_its_bytes_over_the_bandwidth() -> None:
    need = Need(bytes_moved=48 * GB, flops={})
    assert forward_us([Launch(48 * GB)], need, H200) == pytest.approx(10_000 + H200.launch_us)
    assert floor_us(need, H200) == pytest.approx(10_000 + H200.launch_us)


def test_fusing_five_calls_into_one_is_predicted_faster() -> None:
    need = Need(bytes_moved=2 * GB, flops={})
    result = estimate([Launch(2 * GB)] * 5, [Launch(2 * GB)], need, H200)
    assert result.predicted_speedup == pytest.approx(5, rel=0.01)
    assert result.bound == "memory"
    assert "eager moves 10 GB in 5 launches" in result.sentence


def test_a_tiny_op_is_launch_bound() -> None:
    need = Need(bytes_moved=1000, flops={})
    assert bound_of([Launch(1000)] * 3, need, H200) == "launch"


def test_a_large_product_is_compute_bound_and_slower_in_float32() -> None:
    flops = 2 * 8192**3
    need = Need(bytes_moved=3 * 8192**2 * 4, flops={Unit.CUDA_CORES: flops})
    cores, tensor = (Launch(need.bytes_moved, {unit: flops}) for unit in (Unit.CUDA_CORES, Unit.TF32X3))
    assert bound_of([cores], need, H200) == "compute"
    assert forward_us([cores], need, H200) > 2 * forward_us([tensor], need, H200)
    assert floor_us(need, H200) == pytest.approx(forward_us([tensor], need, H200))


def test_a_cache_sized_intermediate_costs_less_than_a_large_one() -> None:
    small, large = 10_000_000, 10_000_000_000
    for size, cached in ((small, True), (large, False)):
        need = Need(bytes_moved=size, flops={})
        memory = forward_us([Launch(size)] * 2, need, H200) - 2 * H200.launch_us
        uncached = 2 * size / (H200.bandwidth_gbps * 1e3)
        assert (memory < uncached * 0.99) is cached


def test_one_program_cannot_draw_the_whole_bandwidth() -> None:
    need = Need(bytes_moved=GB, flops={})
    assert forward_us([Launch(GB, programs=1)], need, H200) > 100 * forward_us([Launch(GB, programs=1000)], need, H200)


def test_spilled_registers_cost_time() -> None:
    need = Need(bytes_moved=GB, flops={})
    assert forward_us([Launch(GB, spilled_bytes=GB)], need, H200) > 1.5 * forward_us([Launch(GB)], need, H200)


def test_sizes_read_well() -> None:
    assert [describe_bytes(count) for count in (12, 4096, 12_345_678, 5e9)] == ["12 bytes", "4.1 kB", "12.3 MB", "5 GB"]
