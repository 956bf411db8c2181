"""Exports an op's forward as an ATen graph: the JSON form of `services.contracts.AtenGraph`.

The forward runs on fake CUDA tensors, so that composite operators decompose as they would on a GPU. Where that fails
it runs once on the real CPU tensors. Either way no decision of the traced program may depend on a tensor's value.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from .graph_modules import describe_init_values, forward_parameters, init_parameters, module_spec, tied_names

MAX_NODES = 2000
MAX_CONSTANT_ELEMENTS = 4096
CPU_ONLY = ("_for_cpu", "mkldnn")
CUDA_ONLY = ("_thnn_fused", "_cudnn", "miopen")
"""Operators that no CPU has: the same forward traced on the CPU says it in common ones."""

Json = Any


def export_graph(model: nn.Module, inputs: Sequence[Any], init_values: Sequence[Any] = ()) -> dict[str, Json]:
    """The ATen graph of `model(*inputs)` in eval mode.

    `init_values` are the values that the constructor was called with. Raises ValueError with one plain sentence.
    """
    model.eval()
    try:
        recorder, output = _trace_as_on_gpu(model, inputs)
    except ValueError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        where = _user_line(model, error)
        raise ValueError(f"no graph: forward takes a decision or a shape from a tensor's values{where}") from error
    except Exception as error:
        where = _user_line(model, error)
        raise ValueError(f"no graph: tracing stopped{where}: {type(error).__name__}: {error}"[:500]) from error
    return {
        "inputs": recorder.inputs,
        "nodes": recorder.nodes,
        "output": output,
        "constants": recorder.constants,
        "modules": [spec for path, module in model.named_modules() if (spec := module_spec(path, module))],
        "init_parameters": init_parameters(type(model)),
        "init_values": describe_init_values(type(model), init_values),
        "forward_parameters": forward_parameters(model, len(inputs)),
        "scalars": recorder.scalars,
        "ties": tied_names(model),
    }


def _trace_as_on_gpu(model: nn.Module, inputs: Sequence[Any]) -> tuple["Recorder", Json]:
    try:
        return _trace(model, inputs, FakeTensorMode(allow_non_fake_inputs=True))
    except (ValueError, DataDependentOutputException, DynamicOutputShapeException):
        raise
    except Exception as fake_error:  # noqa: BLE001  some operators have no fake form
        try:
            return _trace(model, inputs, None)
        except Exception as error:
            raise error from fake_error


def _trace(model: nn.Module, inputs: Sequence[Any], fake: FakeTensorMode | None) -> tuple["Recorder", Json]:
    recorder = Recorder(model, fake)
    state = {name: recorder.add_input("parameter", name, tensor) for name, tensor in model.named_parameters()}
    state |= {name: recorder.add_input("buffer", name, tensor) for name, tensor in model.named_buffers()}
    arguments = [recorder.add_argument(str(i), value) for i, value in enumerate(inputs)]
    without_cpu_libraries = nullcontext() if fake else torch.backends.mkldnn.flags(enabled=False)
    with torch.no_grad(), without_cpu_libraries, whole_attention(recorder), fake or nullcontext(), recorder:
        result = torch.func.functional_call(model, state, tuple(arguments))
    return recorder, recorder.encode_output(result)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists every ATen call below autograd."""

    def __init__(self, model: nn.Module, fake: FakeTensorMode | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.fake = fake
        self.inputs: list[dict[str, Json]] = []
        self.nodes: list[dict[str, Json]] = []
        self.constants: dict[str, Json] = {}
        self.scalars: dict[str, Json] = {}
        self._names: set[str] = set()
        self._known: dict[int, tuple[torch.Tensor, Json]] = {}
        """id -> the tensor, kept alive so that ids stay unique, and its encoded reference."""

    def add_argument(self, path: str, value: Any) -> Any:
        """The traced stand-in of one value of get_inputs()."""
        if isinstance(value, torch.Tensor):
            return self.add_input("input", path, value)
        if isinstance(value, list | tuple):
            return type(value)([self.add_argument(f"{path}[{i}]", item) for i, item in enumerate(value)])
        if isinstance(value, dict):
            return {key: self.add_argument(f"{path}[{key!r}]", item) for key, item in value.items()}
        self.scalars[path] = _encode_plain(value)
        return value

    def add_input(self, kind: str, source: str, tensor: torch.Tensor) -> torch.Tensor:
        """A placeholder with the tensor's own shape and strides."""
        if tensor.is_complex():
            raise ValueError(f"no graph: complex tensors ({source}) are not supported yet")
        name = self._name(f"{kind}_{source}")
        spec = _spec(tensor)
        traced = self._stand_in(tensor.detach())
        self.inputs.append({"name": name, "kind": kind, "source": source, "spec": spec})
        self._known[id(traced)] = (traced, {"node": name})
        return traced

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):
            raise ValueError(f"no graph: the higher-order operator {func} is not supported")  # noqa: TRY004
        tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        asks_for_attribute = func.namespace == "prim"
        own_constant = func is torch.ops.aten._local_scalar_dense.default and id(tensors[0]) not in self._known
        if asks_for_attribute or own_constant:
            return func(*args, **kwargs)
        self._refuse(func, tensors)
        if func is torch.ops.aten.lift_fresh.default:
            return self._constant(args[0])
        if func is torch.ops.aten.detach.default:
            return self._detached(args[0])
        args, kwargs = tree_map(self._lifted, (args, kwargs))
        if self.fake is not None:
            kwargs = _on_cuda(func, tensors, kwargs)
        encoded = {
            "args": [self._encode(value) for value in args],
            "kwargs": {key: self._encode(value) for key, value in kwargs.items()},
        }
        result = func(*args, **kwargs)
        self.add_node(str(func), encoded, result)
        return result

    def add_node(self, target: str, encoded: dict[str, Json], result: Any) -> None:
        """One call with its result."""
        if len(self.nodes) >= MAX_NODES:
            raise ValueError(f"no graph: forward makes more than {MAX_NODES} ATen calls")
        name = self._name(target.split(".")[1])
        self.nodes.append({"name": name, "target": target, **encoded})
        if isinstance(result, torch.Tensor):
            self._known[id(result)] = (result, {"node": name})
        elif isinstance(result, list | tuple):
            for i, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    self._known[id(item)] = (item, {"item": [name, i]})

    def attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        """One call of scaled_dot_product_attention, whose result is only described."""
        if dropout_p:
            raise ValueError("no graph: forward draws random numbers (dropout of scaled_dot_product_attention)")
        arguments = [query, key, value, attn_mask, 0.0, is_causal]
        encoded = {
            "args": [self._encode(self._lifted(argument)) for argument in arguments],
            "kwargs": {name: _encode_plain(option) for name, option in options.items()},
        }
        with torch.utils._python_dispatch._disable_current_modes():
            result = self._stand_in(torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device="meta"))
        self.add_node("aten.scaled_dot_product_attention.default", encoded, result)
        return result

    def encode_output(self, value: Any) -> Json:
        """The nested structure of the result."""
        if isinstance(value, torch.Tensor):
            return self._encode(self._lifted(value))
        if isinstance(value, tuple):
            return {"tuple": [self.encode_output(item) for item in value]}
        if isinstance(value, list):
            return {"list": [self.encode_output(item) for item in value]}
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ValueError("no graph: forward returns a dict with keys that are not strings")
            return {"dict": {key: self.encode_output(item) for key, item in value.items()}}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": _encode_plain(value)}
        raise ValueError(f"no graph: forward returns a {type(value).__name__}; return tensors, tuples, lists or dicts")

    def _refuse(self, func: Any, tensors: list[torch.Tensor]) -> None:
        name = str(func)
        if func is torch.ops.aten._local_scalar_dense.default:
            raise DataDependentOutputException(func)
        if func.namespace not in {"aten", "prims"}:
            raise ValueError(f"no graph: the custom operator {name} is not supported")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise ValueError(f"no graph: forward draws random numbers ({name})")
        by_position = func is torch.ops.aten.index.Tensor and not any(_is_mask(tensor) for tensor in tensors[1:])
        if torch.Tag.dynamic_output_shape in func.tags and not by_position:
            raise DynamicOutputShapeException(func)
        if self.fake is not None and any(part in name for part in CUDA_ONLY):
            raise NotImplementedError(f"{name} exists on a GPU only")
        if any(part in name for part in CPU_ONLY):
            raise ValueError(f"no graph: {name} exists on the CPU only, and the op could not be traced as for a GPU")

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and id(value) not in self._known:
            return self._constant(value)
        return value

    def _constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that the source made from Python values or keeps in an attribute."""
        attribute = self._attribute_of(tensor)
        if tensor.is_complex():
            raise ValueError("no graph: complex tensors are not supported yet")
        if tensor.numel() > MAX_CONSTANT_ELEMENTS:
            raise ValueError(
                f"no graph: {attribute or 'a tensor made outside forward'} has {tensor.numel()} elements and is "
                "neither a parameter nor a buffer; register it with register_buffer"
            )
        name = self._name(attribute or "constant")
        with torch.utils._python_dispatch._disable_current_modes():
            values = _encode_nested(tensor.detach().cpu().tolist())
            traced = self._stand_in(tensor.detach())
        self.constants[name] = {"spec": _spec(tensor), "values": values}
        self._known[id(traced)] = (traced, {"constant": name})
        self._known[id(tensor)] = (tensor, {"constant": name})
        return traced

    def _attribute_of(self, tensor: torch.Tensor) -> str:
        for path, module in self.model.named_modules():
            for key, value in vars(module).items():
                if value is tensor:
                    return f"{path}.{key}".lstrip(".")
        return ""

    def _detached(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = self._lifted(tensor)
        result: torch.Tensor = torch.ops.aten.detach.default(tensor)
        self._known[id(result)] = (result, self._known[id(tensor)][1])
        return result

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.fake is None:
            return torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor.detach()
        with self.fake:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    def _encode(self, value: Any) -> Json:
        if isinstance(value, torch.Tensor):
            return self._known[id(value)][1]
        if isinstance(value, list | tuple):
            return [self._encode(item) for item in value]
        return _encode_plain(value)

    def _name(self, wish: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in wish).strip("_").lower() or "value"
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name


@contextmanager
def whole_attention(recorder: Recorder) -> Iterator[None]:
    """Keeps scaled_dot_product_attention whole: which fused kernel it takes is the library's own choice at run time.

    nn.MultiheadAttention's fast path goes around it, so it is off meanwhile.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    attention = nn.functional.scaled_dot_product_attention
    torch.backends.mha.set_fastpath_enabled(False)
    nn.functional.scaled_dot_product_attention = recorder.attention  # type: ignore[assignment]
    try:
        with AttentionCalls(attention, recorder.attention):
            yield
    finally:
        nn.functional.scaled_dot_product_attention = attention
        torch.backends.mha.set_fastpath_enabled(fast_path)


class AttentionCalls(TorchFunctionMode):
    """Catches calls of a name that the source imported before it was replaced."""

    def __init__(self, attention: Callable[..., torch.Tensor], replacement: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.attention = attention
        self.replacement = replacement

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = self.replacement if func is self.attention else func
        return call(*args, **(kwargs or {}))


def _is_mask(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.bool, torch.uint8)


def _on_cuda(func: Any, tensors: list[torch.Tensor], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Factories without a device, and copies to the CPU, stay on the GPU: on one every tensor of the op lives there."""
    has_device = any(argument.name == "device" for argument in func._schema.arguments)
    if has_device and (not tensors or kwargs.get("device") is not None):
        return kwargs | {"device": torch.device("cuda", 0)}
    return kwargs


def _encode_plain(value: Any) -> Json:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cuda"}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    raise ValueError(f"no graph: an argument of type {type(value).__name__} is not supported")


def _encode_nested(values: Any) -> Json:
    return [_encode_nested(item) for item in values] if isinstance(values, list) else _encode_plain(values)


def _spec(tensor: torch.Tensor) -> dict[str, Json]:
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }


def _user_line(model: nn.Module, error: BaseException) -> str:
    """' (line N)' of the op's own file, or nothing."""
    try:
        file = inspect.unwrap(type(model).forward).__code__.co_filename
    except AttributeError:
        return ""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""
