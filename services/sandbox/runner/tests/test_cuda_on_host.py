"""Sources that ask for CUDA, on a machine that has none."""

import pytest
import torch

from services.contracts import target_spec
from services.sandbox.runner.cuda_on_host import CudaOnHost

TARGET = target_spec("a100").model_dump()


def test_cuda_devices_become_host_memory() -> None:
    with CudaOnHost(TARGET):
        made = [
            torch.ones(3, device="cuda"),
            torch.ones(3, device=torch.device("cuda", 0)),
            torch.ones(3).cuda(),
            torch.ones(3).to("cuda:0"),
            torch.ones(3).to(torch.device("cuda"), dtype=torch.float16),
            torch.nn.Linear(2, 2, device="cuda").weight,
            torch.nn.Linear(2, 2).cuda().weight,
            torch.nn.Linear(2, 2).to("cuda").weight,
            torch.tensor([1.0], device="cuda"),
            torch.empty_like(torch.ones(2), device="cuda"),
            torch.randn(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)),
        ]
        assert all(tensor.is_cuda and tensor.device == torch.device("cuda", 0) for tensor in made)
        with torch.device("cuda"):
            assert torch.zeros(2).is_cuda
    assert all(tensor.device.type == "cpu" for tensor in made)
    assert made[4].dtype == torch.float16


def test_queries_describe_the_target() -> None:
    with CudaOnHost(TARGET):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (8, 0)
        properties = torch.cuda.get_device_properties(0)
        assert properties.multi_processor_count == 108
        assert torch.cuda.current_device() == 0
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.device(0):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            end.record()
            assert start.elapsed_time(end) == 0
        from triton.runtime import driver

        assert driver.active.get_current_target().arch == 80
        assert driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 108


def test_everything_is_put_back() -> None:
    before = {name: getattr(torch.cuda, name) for name in ("is_available", "get_device_properties", "Stream", "Event")}
    generator = torch.Generator
    with pytest.raises(ZeroDivisionError), CudaOnHost(TARGET):
        raise ZeroDivisionError
    assert {name: getattr(torch.cuda, name) for name in before} == before
    assert torch.Generator is generator
    assert not torch.cuda.is_available()
    assert torch.ones(1).device.type == "cpu"


def test_it_may_be_entered_again() -> None:
    for _ in range(2):
        mapping = CudaOnHost(TARGET)
        with mapping, CudaOnHost(TARGET):
            assert torch.ones(1).is_cuda
    assert not torch.ones(1).is_cuda


def test_graphs_are_refused_with_what_to_do() -> None:
    with CudaOnHost(TARGET), pytest.raises(NotImplementedError, match="launch the kernels directly"):
        torch.cuda.CUDAGraph()
