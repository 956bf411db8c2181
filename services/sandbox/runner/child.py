"""The process that runs user code: answers the judge's requests one by one over its socket.

Whatever runs beside it can forge its answers, so the judge believes none of them without evidence of its own.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import counting, faults, interpreter, memory, module, trees, wire
from .cuda_on_host import CudaOnHost
from .fill import FillUninitialized
from .graph_export import export_graph
from .provenance import HELD_BYTES, Provenance
from .target import compile_launches

Request = dict[str, Any]
_LIMIT = 64 << 20


def serve(channel: socket.socket, fault_fd: int, config: dict[str, Any]) -> None:
    """Answer until the judge hangs up."""
    faulthandler.enable(file=fault_fd, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=fault_fd, all_threads=False, chain=False)
    wire.send(channel, {"ready": True})
    session = Session(config)
    while True:
        try:
            request, fds = wire.receive(channel, _LIMIT)
        except EOFError:
            os._exit(0)
        wire.send(channel, {"id": request["id"], **session.answer(request, fds)})


class Session:
    """One user module and the buffers that it may see."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._path = Path(config["scratch"][0], config["file_name"])
        self._buffers: dict[int, Tensor] = {}
        self._kept: dict[str, list[Tensor]] = {"init": [], "inputs": [], "outputs": []}
        self._map_cuda = False
        self._module: Any = None
        self._model: torch.nn.Module
        self._init: list[Any] = []
        self._calls: dict[str, Callable[[Request], Any]] = {
            "load": self._load,
            "export": self._export,
            "read_state": self._read_state,
            "write_state": self._write_state,
            "make_inputs": self._make_inputs,
            "forward": self._forward,
            "trace": self._trace,
            "compile": self._compile,
        }

    def answer(self, request: Request, fds: list[int]) -> dict[str, Any]:
        """{"ok": ...} or {"error": {"verdict", "report"}}."""
        try:
            self._attach(request, fds)
            if request["call"] == "attach":
                return {"ok": {}}
            with self._cuda():
                return {"ok": self._calls[request["call"]](request)}
        except BaseException as error:  # noqa: BLE001 (SystemExit and all else of the user's is an answer)
            stage = "load" if request["call"] == "load" else "run"
            return {"error": faults.report(error, str(self._path), stage)}

    def _attach(self, request: Request, fds: list[int]) -> None:
        for key in request.get("drop", ()):
            self._buffers.pop(key, None)
        for layout, fd in zip(request.get("attach", ()), fds, strict=True):
            self._buffers[layout["key"]] = memory.attach(fd, layout)

    def _cuda(self) -> contextlib.AbstractContextManager[Any]:
        return CudaOnHost(self._config["target"]) if self._map_cuda else contextlib.nullcontext()

    def _load(self, request: Request) -> Any:
        self._map_cuda = request["map_cuda"]
        with self._cuda():
            return self._build(request)

    def _build(self, request: Request) -> Any:
        module.seed_everything(request["seed"])
        self._module = module.import_source(request["source"], self._path)
        factory = module.definition(self._module, request["class_name"], "class")
        leaves: list[Tensor] = []
        if request["init"] is None:
            module.definition(self._module, "get_inputs", "function")
            init = module.definition(self._module, "get_init_inputs", "function")()
            init = module.arguments(init, "get_init_inputs")
            structure = _encode(init, leaves, "get_init_inputs()")
        else:
            structure = request["init"]
            leaves = [module.clone_layout(self._buffers[key]) for key in request["keys"]]
            init = trees.decode(structure, leaves)
        self._kept["init"] = [module.clone_layout(leaf) for leaf in leaves]
        self._init = list(init.values() if isinstance(init, dict) else init)
        self._model = module.call(factory, init).eval()
        return {
            "init": {"structure": structure, "leaves": [trees.describe(leaf) for leaf in leaves]},
            "state": module.describe_state(self._model),
            "forward_parameters": module.forward_parameters(self._model),
        }

    def _export(self, request: Request) -> Any:
        for key, tensor in zip(request["keys"], self._kept[request["what"]], strict=True):
            module.copy_layout(self._buffers[key], tensor)
        return {}

    def _read_state(self, request: Request) -> Any:
        state = module.state(self._model)
        for name, key in zip(request["names"], request["keys"], strict=True):
            module.copy_layout(self._buffers[key], state[name][1])
        return {}

    def _write_state(self, request: Request) -> Any:
        state = module.state(self._model)
        for name, key in zip(request["names"], request["keys"], strict=True):
            module.copy_layout(state[name][1], self._buffers[key])
        return {}

    def _make_inputs(self, request: Request) -> Any:
        module.seed_everything(request["seed"])
        leaves: list[Tensor] = []
        values = module.arguments(module.definition(self._module, "get_inputs", "function")(), "get_inputs")
        structure = _encode(values, leaves, "get_inputs()")
        self._kept["inputs"] = leaves
        return {"structure": structure, "leaves": [trees.describe(leaf) for leaf in leaves]}

    def _forward(self, request: Request) -> Any:
        wide = request["precision"] == "float64"
        model = module.widened(self._model) if wide else self._model
        inputs = self._inputs(request, wide=wide)
        if request["seed"] is not None:
            module.seed_everything(request["seed"])
        held_bytes = HELD_BYTES if self._map_cuda else 0  # only candidates have something to hide
        leaves = [self._buffers[key] for key in request["keys"]]
        provenance = Provenance(leaves, held_bytes) if request["count"] else None
        counter = counting.AtenCounter(provenance) if request["count"] else contextlib.nullcontext()
        model.train(request["train"])
        try:
            with (
                torch.set_grad_enabled(_needs_grad(request)),
                interpreter.recording(request["count"], request["kernels_disabled"], provenance) as launches,
                FillUninitialized.or_nothing(request["fill_uninitialized"]),
                counter,
            ):
                start = time.perf_counter()
                outputs = module.call(model, inputs)
                seconds = time.perf_counter() - start
        finally:
            model.eval()
        leaves = []
        structure = _encode(outputs, leaves, "the result of forward()")
        self._kept["outputs"] = leaves
        return {
            "outputs": {"structure": structure, "leaves": [trees.describe(leaf) for leaf in leaves]},
            "launches": [self._launch(record) for record in launches],
            "aten": counter.calls if isinstance(counter, counting.AtenCounter) else None,
            "provenance": provenance.summary(leaves) if provenance else None,
            "seconds": seconds,
        }

    def _launch(self, record: dict[str, Any]) -> dict[str, Any]:
        """As `replies.Launch` has it: a library's kernel has no line in the user's file."""
        return record if record["file"] == str(self._path) else {**record, "line": None}

    def _trace(self, request: Request) -> Any:
        inputs = self._inputs(request)
        if isinstance(inputs, dict):
            return {"refused": "no graph: get_inputs() returns keywords; return a list of positional inputs"}
        try:
            return {"graph": export_graph(self._model, inputs, self._init)}
        except ValueError as error:
            return {"refused": str(error)}

    def _compile(self, request: Request) -> Any:
        inputs = self._inputs(request)
        with torch.set_grad_enabled(_needs_grad(request)):
            kernels = compile_launches(lambda: module.call(self._model, inputs), self._config["target"])
        return {"kernels": kernels}

    def _inputs(self, request: Request, *, wide: bool = False) -> Any:
        tensors = [self._buffers[key] for key in request["keys"]]
        if wide:
            tensors = [module.widen(tensor) for tensor in tensors]
        tensors = [
            tensor.detach().requires_grad_() if needed else tensor
            for tensor, needed in zip(tensors, request["requires_grad"], strict=True)
        ]
        return trees.decode(request["structure"], tensors)


def _encode(value: Any, leaves: list[Tensor], what: str) -> Any:
    try:
        return trees.encode(value, leaves)
    except trees.UnsupportedValue as error:
        raise trees.UnsupportedValue(f"{what}: {error}") from None


def _needs_grad(request: Request) -> bool:
    return any(request["requires_grad"])
