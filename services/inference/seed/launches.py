"""Prints how a kernel is tuned and launched."""

from services.inference.seed.configurations import Configuration, configurations
from services.inference.seed.kernels import PlainKernel
from services.inference.seed.program import WrittenKernel

LARGE_TILE = 8192
"""Elements of one tile that 256 threads still hold in registers: 32 each."""


def configuration_texts(written: WrittenKernel, kernel: PlainKernel) -> list[str]:
    """One triton.Config for each choice, the default first."""
    offered = configurations(written)
    fixed = 1
    for name, size in kernel.constants.items():
        fixed *= size if name.startswith("BLOCK") else 1
    choices = [_named(choice, kernel.blocks) for choice in offered]
    largest = max(choices, key=lambda choice: choice.block_elements)
    if "BLOCK_ROWS" in dict(largest.blocks) and largest.block_elements * fixed < LARGE_TILE // 2:
        taller = _taller(largest, kernel, fixed)
        choices += [taller] if taller.block_elements > largest.block_elements else []
    return [_configuration_text(choice) for choice in dict.fromkeys(choices)]


def _named(choice: Configuration, names: dict[str, str]) -> Configuration:
    blocks = tuple((names[name], size) for name, size in choice.blocks if name in names)
    return Configuration(blocks, choice.num_warps, choice.num_stages)


def _taller(choice: Configuration, kernel: PlainKernel, fixed: int) -> Configuration:
    """The same with more rows to a tile, where Inductor offers short ones only."""
    rows = kernel.grid[0][0]
    blocks = dict(choice.blocks)
    tall = blocks["BLOCK_ROWS"]
    while tall * 2 <= rows and choice.block_elements // blocks["BLOCK_ROWS"] * fixed * tall * 2 <= LARGE_TILE:
        tall *= 2
    return Configuration(tuple((blocks | {"BLOCK_ROWS": tall}).items()), max(choice.num_warps, 8), choice.num_stages)


def _configuration_text(choice: Configuration) -> str:
    blocks = ", ".join(f'"{name}": {size}' for name, size in choice.blocks)
    stages = f", num_stages={choice.num_stages}"
    return f"triton.Config({{{blocks}}}, num_warps={choice.num_warps}{stages})"


def grid_text(kernel: PlainKernel) -> str:
    """The grid as a function of the tuned tile sizes."""
    sizes = [
        f'triton.cdiv({count}, meta["{block}"])' if block in kernel.blocks.values() else str(count)
        for count, block in kernel.grid
    ]
    return f"lambda meta: ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
