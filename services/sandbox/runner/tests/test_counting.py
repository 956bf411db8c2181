"""ATen calls: bytes, views and FLOPs."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.sandbox.runner.counting import AtenCounter


def calls(function: object, *inputs: Tensor) -> dict[str, dict[str, object]]:
    with torch.no_grad(), AtenCounter() as counter:
        function(*inputs)  # type: ignore[operator]
    return {call["name"]: call for call in counter.calls}


def test_a_pointwise_call_reads_its_inputs_and_writes_its_output() -> None:
    add = calls(torch.add, torch.ones(8, 4), torch.ones(4))["aten.add.Tensor"]
    assert (add["bytes_read"], add["bytes_written"], add["flops"], add["matmul"]) == (144, 128, 32, False)


def test_views_cost_nothing_and_a_copy_of_one_does() -> None:
    seen = calls(lambda x: x.t()[1:].reshape(-1), torch.ones(4, 8))
    views = [call for name, call in seen.items() if "clone" not in name and "copy" not in name]
    assert views
    assert all(call["bytes_read"] == call["bytes_written"] == call["flops"] == 0 for call in views)
    assert seen["aten.clone.default"]["bytes_written"] == 28 * 4


def test_an_expanded_axis_is_read_once() -> None:
    total = calls(lambda x: x.expand(100, 8).sum(), torch.ones(1, 8))["aten.sum.default"]
    assert (total["bytes_read"], total["flops"]) == (32, 800)


def test_in_place_calls_write_their_argument() -> None:
    seen = calls(lambda x: x.add_(1).zero_(), torch.ones(16))
    assert (seen["aten.add_.Tensor"]["bytes_read"], seen["aten.add_.Tensor"]["bytes_written"]) == (64, 64)
    assert (seen["aten.zero_.default"]["bytes_read"], seen["aten.zero_.default"]["bytes_written"]) == (0, 64)


def test_an_embedding_reads_the_rows_that_it_looks_up() -> None:
    seen = calls(F.embedding, torch.tensor([1, 2]), torch.ones(1000, 8))["aten.embedding.default"]
    assert (seen["bytes_read"], seen["flops"]) == (16 + 64, 0)


def test_products_count_two_flops_for_each_multiply_and_add() -> None:
    product = calls(F.linear, torch.ones(4, 8), torch.ones(16, 8), torch.ones(16))["aten.addmm.default"]
    assert (product["flops"], product["matmul"], product["dtype"]) == (2 * 4 * 8 * 16, True, "float32")
    convolution = calls(F.conv2d, torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))["aten.convolution.default"]
    assert convolution["flops"] == 2 * 4 * 6 * 6 * 3 * 9
    query = torch.ones(1, 2, 8, 16)
    attention = calls(F.scaled_dot_product_attention, query, query, query)
    assert attention["aten._scaled_dot_product_flash_attention_for_cpu.default"]["flops"] == 2 * 2 * 2 * 8 * 8 * 16


def test_allocation_costs_nothing_and_filling_does() -> None:
    seen = calls(lambda: (torch.empty(16), torch.zeros(16)))
    assert seen["aten.empty.memory_format"]["bytes_written"] == 0
    assert seen["aten.zeros.default"]["bytes_written"] == 64
