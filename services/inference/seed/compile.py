"""From an ATen graph to the seed's source."""

import ast

from torch._subclasses.fake_tensor import FakeTensorMode

from services.contracts import AtenGraph, GpuSpec
from services.inference.seed.errors import NoSeedError
from services.inference.seed.graph import build_module, fake_inputs
from services.inference.seed.inductor import decompose, pretended_gpu, write_program
from services.inference.seed.module import Seed, write_module
from services.inference.seed.program import read_program


def compile_seed(graph: AtenGraph, source: str, name: str, target: GpuSpec) -> Seed:
    """The seed for one target GPU. Raises NoSeedError; `source` is only read, never run."""
    with pretended_gpu(target):
        fake = FakeTensorMode()
        module = build_module(graph)
        with fake:
            inputs = fake_inputs(graph)
        try:
            decomposed = decompose(module, inputs, fake)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise NoSeedError(f"the graph cannot be decomposed: {str(error).splitlines()[0]}") from error
        program = read_program(write_program(decomposed, inputs, fake))
        seed = write_module(graph, program, source, name)
    ast.parse(seed.source)
    return seed
