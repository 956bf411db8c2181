"""Assembles the standalone file: imports, device functions, kernels, ModelNew."""

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.contracts import AtenGraph, GraphInput, InputKind, TensorSpec
from services.inference.seed.configurations import Configuration
from services.inference.seed.errors import NoSeedError
from services.inference.seed.forward import (
    MODULE_NAMES,
    WIDTH,
    Values,
    allocation_text,
    base_name,
    call_parts,
    constant_attribute,
    input_text,
    launch_lines,
    library_text,
    python_text,
    wrapped,
)
from services.inference.seed.graph import call_name, tensor_leaves
from services.inference.seed.kernels import PlainKernel, rewrite_kernel
from services.inference.seed.kernels.device_functions import FUNCTIONS, needed_functions
from services.inference.seed.launches import choices_of, decorator_lines, grid_text, launch_options
from services.inference.seed.operators import EXTREMES, STEPS, VIEWS, WITH_BIAS, call_text, plain_word, words_of
from services.inference.seed.program import Allocation, Launch, LibraryCall, Program, Rename, WrittenKernel
from services.inference.seed.results import output_names
from services.inference.seed.state import Constructor, constructor
from services.inference.seed.views import contiguous_stride, is_contiguous

LONGEST_NAME = 36


@dataclass
class Seed:
    """The file, and what it does in numbers."""

    source: str
    kernel_count: int
    fused: list[str]
    """ATen operators that kernels compute, in order, views left out."""
    library_calls: int


def write_module(graph: AtenGraph, program: Program, source: str, name: str) -> Seed:
    """The standalone file for an op. Raises NoSeedError."""
    if not program.kernels:
        raise NoSeedError(_without_kernels(program))
    return _Assembly(graph, program, source, name).seed()


class _Assembly:
    def __init__(self, graph: AtenGraph, program: Program, source: str, name: str) -> None:
        self.graph = graph
        self.program = program
        self.source = source
        self.name = name
        self.parameters = _parameter_names(graph)
        self.values = Values(graph, program, self.parameters)
        self.operators = {call_name(node.name): node.target.split(".")[1] for node in graph.nodes}
        self.kernels: dict[str, tuple[str, PlainKernel, list[Configuration]]] = {}
        self.kernel_sources: list[str] = []
        self.functions: set[str] = set()
        self.combines: dict[str, str] = {}
        self.libdevice = False
        self.fused: list[str] = []
        self.library_calls = 0
        self.lines: list[str] = []
        self.allocations: dict[str, Allocation] = {}
        self.result_names = self._result_names()
        self.constructor: Constructor = constructor(graph, source)

    def seed(self) -> Seed:
        """Walks the program once and prints everything."""
        for step in self.program.steps:
            match step:
                case Allocation():
                    self.allocations[step.name] = step
                case Rename():
                    self._rename(step)
                case LibraryCall():
                    self._library_call(step)
                case Launch():
                    self._launch(step)
        results = [self.values.expression(result) for result in self.program.results]
        if not self.kernels:
            raise NoSeedError("Inductor's kernels are never launched")
        return Seed(self._text(results), len(self.kernels), self.fused, self.library_calls)

    def _result_names(self) -> dict[str, str]:
        """Inductor's name of each buffer that is returned as it is -> the new name."""
        wishes = output_names(self.graph.output, self.source)
        names: dict[str, str] = {}
        for wish, result in zip(wishes, self.program.results, strict=False):
            if base := base_name(result):
                names.setdefault(base, wish)
        return names

    def _rename(self, step: Rename) -> None:
        base = base_name(step.value)
        if base in self.allocations:
            self._allocate(base, "joined")
        if step.name in self.result_names and isinstance(step.value, ast.Subscript):
            text = self.values.expression(step.value)
            name = self.values.define(step.name, self.result_names[step.name], None)
            self.lines.append(f"        {name} = {text}")
            return
        self.values.alias(step)

    def _allocate(self, original: str, wish: str) -> None:
        """Prints the allocation of a buffer, where it is first used."""
        step = self.allocations.pop(original, None)
        if step is None:
            return
        dtype = step.dtype.removeprefix("torch.")
        spec = TensorSpec(shape=list(step.shape), stride=list(step.stride), dtype=dtype)
        name = self.values.define(original, self.result_names.get(original, wish), spec)
        self.lines += wrapped(f"{name} = ", *call_parts(allocation_text(step, self.values.device)))

    def _library_call(self, step: LibraryCall) -> None:
        self.library_calls += 1
        for argument in ast.walk(step.call):
            if isinstance(argument, ast.Name) and argument.id in self.allocations:
                self._allocate(argument.id, "joined")
        text, wish = library_text(step, self.values)
        if step.out is None:
            name = self.values.define(step.name, self.result_names.get(step.name, wish), None)
            self.lines += wrapped(f"{name} = ", *call_parts(text))
            return
        allocation = self.allocations.get(step.name)
        if allocation is not None and _is_dense(allocation):
            del self.allocations[step.name]
            spec = TensorSpec(shape=list(allocation.shape), stride=list(allocation.stride), dtype="")
            name = self.values.define(step.name, self.result_names.get(step.name, wish), spec)
            self.lines += wrapped(f"{name} = ", *call_parts(text))
            return
        self._allocate(base_name(step.out), wish)
        function, arguments, tail = call_parts(text)
        self.lines += wrapped("", function, [*arguments, f"out={self.values.expression(step.out)}"], tail)

    def _launch(self, step: Launch) -> None:
        written = self.program.kernels[step.kernel]
        name, kernel, choices = self.kernels.get(step.kernel) or self._rewrite(step, written)
        arguments = dict(zip(written.pointer_types, step.arguments, strict=True))
        for original, argument in arguments.items():
            base = base_name(argument)
            if base in self.allocations:
                self._allocate(base, kernel.stored.get(original, "joined"))
        texts = [self.values.argument(arguments[original]) for original, _ in kernel.parameters]
        texts += [f"{key}={value}" for key, value in kernel.constants.items()]
        texts += launch_options(choices)
        self.lines += launch_lines(name, grid_text(kernel, choices), texts)

    def _rewrite(self, step: Launch, written: WrittenKernel) -> tuple[str, PlainKernel, list[Configuration]]:
        """The kernel, named after its first launch."""
        tensors: dict[str, str] = {}
        for original, argument in zip(written.pointer_types, step.arguments, strict=True):
            base = base_name(argument)
            if base in self.allocations:
                if base in self.result_names:
                    tensors[original] = self.result_names[base]
            else:
                tensors[original] = self.values.word(argument)
        operators = self._operators_of(written)
        shape = self._result_shape(step, written)
        kernel = rewrite_kernel(written, tensors, shape, exact_extremes=bool(EXTREMES & set(operators)))
        name = self._kernel_name(operators, written)
        choices = choices_of(written, kernel)
        self.kernels[step.kernel] = (name, kernel, choices)
        self.functions |= kernel.functions
        self.combines |= kernel.combines
        self.libdevice |= kernel.libdevice
        self.fused += [operator for operator in operators if operator not in VIEWS]
        tuning = []
        if len(choices) > 1:
            sizes = [key for key in kernel.constants if not key.startswith("BLOCK")]
            tuning = decorator_lines(choices, sizes, kernel.mutated)
        text = self._kernel_text(name, kernel, written, step, operators)
        self.kernel_sources.append("\n".join([*tuning, text]))
        return self.kernels[step.kernel]

    def _result_shape(self, step: Launch, written: WrittenKernel) -> list[int]:
        """Shape of a dense buffer that the kernel fills."""
        bases = [base_name(argument) for argument in step.arguments[::-1]]
        allocation = next((self.allocations[base] for base in bases if base in self.allocations), None)
        return list(allocation.shape) if allocation and _is_dense(allocation) else []

    def _operators_of(self, written: WrittenKernel) -> list[str]:
        """ATen operators that a kernel computes, one for each call, in the graph's order.

        "addmm.bias" where a library does the product.
        """
        library = {name for step in self.program.steps if isinstance(step, LibraryCall) for name in step.sources}
        return [
            f"{operator}.bias" if name in library and operator in WITH_BIAS else operator
            for name, operator in self.operators.items()
            if name in written.sources
        ]

    def _kernel_name(self, operators: list[str], written: WrittenKernel) -> str:
        words = list(dict.fromkeys(plain_word(operator) for operator in operators if operator not in VIEWS))
        if not words:
            words = words_of(written.name)
        while len("_".join(words[:4])) > LONGEST_NAME and len(words) > 2:
            words = words[: min(len(words), 4) - 1]
        name = "_".join(words[:4])
        stem = f"fused_{name}" if len(words) > 1 else name
        return self.values.namer.fresh(f"{stem}_kernel")

    def _kernel_text(
        self, name: str, kernel: PlainKernel, written: WrittenKernel, step: Launch, operators: list[str]
    ) -> str:
        lines = ["@triton.jit"]
        parameters = [new for _, new in kernel.parameters]
        parameters += [f"{constant}: tl.constexpr" for constant in kernel.constants]
        parameters += [f"{block}: tl.constexpr" for block in kernel.blocks.values()]
        lines += wrapped("def ", name, parameters, ":", depth=0)
        lines += self._docstring(kernel, written, step, operators)
        return "\n".join([*lines, *kernel.lines])

    def _docstring(self, kernel: PlainKernel, written: WrittenKernel, step: Launch, operators: list[str]) -> list[str]:
        named = [call_text(operator) for operator in dict.fromkeys(operators) if operator not in VIEWS]
        if not operators:
            text = STEPS.get(written_words := "_".join(words_of(written.name))) or f"Computes {written_words}."
        elif not named:
            text = f"Copies into another layout: {', '.join(map(call_text, dict.fromkeys(operators)))}."
        else:
            text = f"{'Fuses' if len(named) > 1 else 'Computes'} {', '.join(named)}."
        head = textwrap.wrap(text, WIDTH - 7, initial_indent='    """', subsequent_indent="    ")
        arguments = dict(zip(written.pointer_types, step.arguments, strict=True))
        shapes = []
        for original, new in kernel.parameters:
            shape = self._shape_text(base_name(arguments[original]))
            shapes.append(f"    {new}: {written.pointer_types[original]}{shape}")
        return [*head, "", *shapes, '    """']

    def _shape_text(self, original: str) -> str:
        allocation = self.allocations.get(original)
        spec = self.values.specs.get(original)
        shape = list(allocation.shape) if allocation else spec.shape if spec else None
        return "" if shape is None else f"[{', '.join(map(str, shape))}]"

    def _text(self, results: list[str]) -> str:
        parts = [f'"""{_title(self.name)}: compiler seed, specialised for the shapes that ModelNew checks."""', ""]
        body = self._class_text(results)
        uses_functional = re.search(r"\bF\.", body) is not None
        parts += ["import torch", "import torch.nn as nn"]
        parts += ["import torch.nn.functional as F"] if uses_functional else []
        parts += ["import triton", "import triton.language as tl"]
        parts += ["from triton.language.extra import libdevice"] if self.libdevice else []
        parts += ["", *self.constructor.constants] if self.constructor.constants else []
        device = [FUNCTIONS[name].source.strip("\n") for name in needed_functions(self.functions)]
        device += [source.strip("\n") for source in self.combines.values()]
        blocks = [*device, *self.kernel_sources]
        if self._tensor_inputs():
            blocks.append(_CHECK)
        blocks.append(body)
        return "\n".join(parts) + "\n\n\n" + "\n\n\n".join(blocks) + "\n"

    def _tensor_inputs(self) -> list[GraphInput]:
        return [item for item in self.graph.inputs if item.kind is InputKind.INPUT]

    def _class_text(self, results: list[str]) -> str:
        init = self.constructor
        signature = f"def __init__(self{', ' if init.parameters else ''}{init.parameters}):"
        lines = ["class ModelNew(nn.Module):", f'    """{self._summary()}"""', ""]
        setup = [*init.lines, *self._constant_lines()]
        if init.parameters or len(setup) > 1:
            lines += [f"    {signature}", *(f"        {line}" for line in setup), ""]
        lines += [f"    def forward(self{''.join(f', {name}' for name in self.parameters)}):"]
        lines += self._checks()
        body = "\n".join(self.lines)
        device = self.values.device
        if re.search(rf"\b{device}\b", body + " ".join(results)):
            lines.append(f"        {device} = {self._device_source()}.device")
        lines += self.lines
        lines.append(f"        return {self._result_text(results)}")
        return "\n".join(lines)

    def _summary(self) -> str:
        kernels = f"{len(self.kernels)} Triton kernel{'s' if len(self.kernels) != 1 else ''}"
        calls = f" and {self.library_calls} library call{'s' if self.library_calls != 1 else ''}"
        return f"The op in {kernels}{calls if self.library_calls else ''}."

    def _constant_lines(self) -> list[str]:
        """Attributes for tensors that the source made, where its own __init__ does not already make them."""
        lines = []
        existing = "\n".join(self.constructor.lines)
        for name, constant in self.graph.constants.items():
            attribute = constant_attribute(name)
            if re.search(rf"\bself\.{attribute}\b", existing) or not isinstance(constant, dict):
                continue
            dtype = TensorSpec.model_validate(constant["spec"]).dtype
            values = python_text(constant["values"])
            lines.append(f"self.{attribute} = torch.tensor({values}, dtype=torch.{dtype})")
        return lines

    def _checks(self) -> list[str]:
        lines: list[str] = []
        for item in self._tensor_inputs():
            text = input_text(item, self.parameters)
            spec = item.spec
            quoted = text.replace('"', "'")
            arguments = [f'"{quoted}"', text, str(tuple(spec.shape)), str(tuple(spec.stride)), f"torch.{spec.dtype}"]
            lines += wrapped("", "check_input", arguments)
        for source, value in self.graph.scalars.items():
            position, bracket, rest = source.partition("[")
            text = f"{self.parameters[int(position)]}{bracket}{rest}".replace("'", '"')
            wanted = python_text(value)
            comparison = (
                f"{text} is not {wanted}" if value is None or isinstance(value, bool) else f"{text} != {wanted}"
            )
            words = text.replace('"', "'")
            lines.append(f"        if {comparison}:")
            lines.append(f'            raise ValueError("specialised for {words}={wanted.replace(chr(34), chr(39))}")')
        return lines

    def _device_source(self) -> str:
        inputs = self._tensor_inputs() or self.graph.inputs
        if not inputs:
            raise NoSeedError("the op has no tensor input")
        return input_text(inputs[0], self.parameters)

    def _result_text(self, results: list[str]) -> str:
        leaves = iter(results)
        if len(tensor_leaves(self.graph.output)) != len(results):
            raise NoSeedError("Inductor returns another number of results than the op")

        def text(node: Any, *, outermost: bool = False) -> str:
            ((tag, body),) = node.items()
            if tag == "value":
                return python_text(body)
            if tag == "list":
                return f"[{', '.join(text(item) for item in body)}]"
            if tag == "tuple":
                items = ", ".join(text(item) for item in body)
                plain = outermost and len(body) > 1
                return items if plain else f"({items}{',' if len(body) == 1 else ''})"
            if tag == "dict":
                return "{" + ", ".join(f"{python_text(key)}: {text(item)}" for key, item in body.items()) + "}"
            return next(leaves)

        return text(self.graph.output, outermost=True)


_CHECK = '''def check_input(name, tensor, shape, stride, dtype):
    """Refuse a tensor that the kernels were not specialised for."""
    if tensor.shape == shape and tensor.stride() == stride and tensor.dtype == dtype:
        return
    strides_fit = all(
        size == 1 or got == want for size, got, want in zip(tensor.shape, tensor.stride(), stride, strict=False)
    )
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not strides_fit:
        raise ValueError(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()}; "
            f"this file is specialised for {dtype} {shape} with strides {stride}"
        )'''


def _without_kernels(program: Program) -> str:
    calls = dict.fromkeys(ast.unparse(step.call.func) for step in program.steps if isinstance(step, LibraryCall))
    if not calls:
        return "forward computes nothing itself (it only makes views), so there is no kernel to write"
    names = ", ".join(call.removeprefix("torch.ops.").replace("extern_kernels.", "aten.") for call in calls)
    return f"the compiler leaves all of it to library calls ({names}), so there is no kernel to write"


def _parameter_names(graph: AtenGraph) -> list[str]:
    count = 1 + max((int(re.split(r"\[", source)[0]) for source in _argument_sources(graph)), default=-1)
    names = list(graph.forward_parameters)
    readable = all(name.isidentifier() and name not in MODULE_NAMES - {"tl", "libdevice"} for name in names)
    if len(names) < count or not readable:
        raise NoSeedError("forward's parameters cannot be repeated")
    return names


def _argument_sources(graph: AtenGraph) -> list[str]:
    return [item.source for item in graph.inputs if item.kind is InputKind.INPUT] + list(graph.scalars)


def _is_dense(step: Allocation) -> bool:
    spec = TensorSpec(shape=list(step.shape), stride=list(step.stride), dtype="")
    return is_contiguous(spec) or list(step.stride) == contiguous_stride(spec.shape)


def _title(name: str) -> str:
    return re.sub(r'["\\\s]+', " ", name).strip() or "Op"


def fused_operators(seed: Seed) -> Sequence[str]:
    """Operators in plain words, each once."""
    return list(dict.fromkeys(plain_word(operator) for operator in seed.fused))
