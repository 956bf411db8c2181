"""What a module's ATen calls read, write and compute."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from .provenance import Provenance

# Calls that compute nothing: they only move, make or describe values.
_MOVES = frozenset(
    """
    _to_copy _unsafe_index alias_copy arange as_strided bernoulli bernoulli_ cat clone constant_pad_nd copy copy_ detach
    embedding empty empty_like empty_permuted empty_strided exponential_ eye fill fill_ flip full full_like gather index
    index_put index_put_ index_select lift_fresh masked_fill masked_fill_ masked_select new_empty new_empty_strided
    new_full new_ones new_zeros nonzero normal_ ones ones_like rand randint randn random_ repeat roll scalar_tensor
    scatter scatter_ select_scatter slice_scatter stack tril triu uniform_ where zero_ zeros zeros_like
    """.split()  # noqa: SIM905
)
_ALLOCATIONS = frozenset(name for name in _MOVES if "empty" in name)
# Their first argument is a table of which only the rows asked for are read.
_LOOKUPS = frozenset({"embedding", "gather", "index", "index_select", "_unsafe_index"})
_OVERWRITES = frozenset({"bernoulli_", "copy_", "exponential_", "fill_", "normal_", "random_", "uniform_", "zero_"})
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


class AtenCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists each ATen call made inside the `with` block in `calls`.

    A call is a dict: name ("aten.add.Tensor"), bytes_read, bytes_written, flops, matmul (whether it is a matrix product
    or a convolution), rows (see `_rows`) and dtype (of its first floating tensor, else ""). A view costs nothing. FLOPs
    of products by torch.utils.flop_counter (a multiply and an add count as two), others one for each element.
    """

    def __init__(self, provenance: Provenance | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[dict[str, Any]] = []
        self._provenance = provenance

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append(_describe(func, args, kwargs, result))
        if self._provenance is not None:
            written = _mutated(func, args, kwargs)
            overwritten = {id(tensor) for tensor in written} if _overwrites(func) else set()
            reads = (tensor for tensor in _tensors((args, kwargs)) if id(tensor) not in overwritten)
            # set_ computes nothing: it adopts a storage, whoever has written that
            writes = [] if func.overloadpacket.__name__ == "set_" else [*_tensors(result), *written]
            self._provenance.called(reads, writes)
        return result


def _describe(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    name = func.overloadpacket.__name__
    inputs = list(_tensors((args, kwargs)))
    outputs = list(_tensors(result))
    written = _mutated(func, args, kwargs)
    owned = {_storage(tensor) for tensor in inputs}
    fresh = [tensor for tensor in outputs if _storage(tensor) not in owned]
    is_view = bool(outputs) and not fresh and not written
    matmul_flops = _matmul_flops(func, args, kwargs, result)
    flops = matmul_flops
    if not flops and not is_view and name not in _MOVES:
        flops = max((tensor.numel() for tensor in (*inputs, *outputs)), default=0)
    bytes_read = 0 if is_view or name in _ALLOCATIONS else _bytes_read(name, inputs, outputs, written)
    bytes_written = 0 if name in _ALLOCATIONS else sum(map(_size_bytes, fresh)) + sum(map(_size_bytes, written))
    return {
        "name": str(func),
        "bytes_read": bytes_read,
        "bytes_written": bytes_written,
        "flops": flops,
        "matmul": matmul_flops > 0,
        "rows": _rows(name, args, outputs),
        "dtype": next((str(t.dtype).removeprefix("torch.") for t in (*inputs, *outputs) if t.is_floating_point()), ""),
    }


def _bytes_read(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], written: list[torch.Tensor]) -> int:
    skipped = {id(tensor) for tensor in written} if name in _OVERWRITES or name.endswith("_out") else set()
    sizes = {id(tensor): _size_bytes(tensor) for tensor in inputs if id(tensor) not in skipped}
    if name in _LOOKUPS and inputs:
        table = id(inputs[0])
        sizes[table] = min(sizes[table], sum(map(_size_bytes, outputs)))
    return sum(sizes.values())


def _overwrites(func: Any) -> bool:
    """Whether what it writes is not read before."""
    return func._overloadname.endswith("out") or func.overloadpacket.__name__ in _OVERWRITES


def _rows(name: str, args: Any, outputs: list[torch.Tensor]) -> int | None:
    """Rows, where eager's CUDA kernel gives each row one block; None where its grid follows the elements."""
    if name in ("_softmax", "_log_softmax") and args[1] in (-1, outputs[0].dim() - 1):
        return outputs[0].numel() // max(outputs[0].shape[-1], 1)
    return outputs[1].numel() if name == "native_layer_norm" else None


def _matmul_flops(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> int:
    packet = func.overloadpacket
    if packet.__name__ == _ATTENTION:
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))  # type: ignore[no-untyped-call]
    if packet.__name__ == "mkldnn_rnn_layer":
        # Each of input's rows meets every element of both weights once.
        return 2 * int(args[0].shape[:-1].numel()) * int(args[1].numel() + args[2].numel())
    formula: Callable[..., int] | None = flop_registry.get(packet)
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _mutated(func: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Arguments that the call's schema says it writes."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _size_bytes(tensor: torch.Tensor) -> int:
    """Distinct bytes: an expanded axis is read once."""
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count
