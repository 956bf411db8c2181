"""Prints how a kernel is tuned and launched."""

import math

from services.inference.seed.configurations import Configuration, configurations
from services.inference.seed.kernels import PlainKernel
from services.inference.seed.program import WrittenKernel

LARGE_TILE = 8192
"""Elements of one tile that 256 threads still hold in registers: 32 each."""
SMALL_KERNEL = 1 << 20
"""Elements of a kernel that is not worth tuning. On an H200 the tuner cost each launch 15 us of host time (41 us in
place of 26 us, triton 3.6), and over 22 such ops it changed the device time by at most 0.6 us.
"""
MAX_PROGRAMS = 512
"""Programs of a small kernel: about four for each multiprocessor."""


def choices_of(written: WrittenKernel, kernel: PlainKernel) -> list[Configuration]:
    """What autotuning chooses among, the default first; with one choice there is nothing to tune."""
    offered = configurations(written)
    if kernel.elements <= SMALL_KERNEL:
        named = [_named(choice, kernel.blocks) for choice in offered]
        few = (choice for choice in named if _programs(choice, kernel) <= MAX_PROGRAMS)
        return [next(few, max(named, key=lambda choice: choice.block_elements))]
    fixed = 1
    for name, size in kernel.constants.items():
        fixed *= size if name.startswith("BLOCK") else 1
    choices = [_named(choice, kernel.blocks) for choice in offered]
    largest = max(choices, key=lambda choice: choice.block_elements)
    if "BLOCK_ROWS" in dict(largest.blocks) and largest.block_elements * fixed < LARGE_TILE // 2:
        taller = _taller(largest, kernel, fixed)
        choices += [taller] if taller.block_elements > largest.block_elements else []
    return list(dict.fromkeys(choices))


def _programs(choice: Configuration, kernel: PlainKernel) -> int:
    blocks = dict(choice.blocks)
    return math.prod(-(-count // blocks.get(block, 1)) for count, block in kernel.grid)


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


def decorator_lines(choices: list[Configuration], sizes: list[str], restored: list[str]) -> list[str]:
    """@triton.autotune over the choices. `sizes`: the arguments that ask for another; `restored`: written in place."""
    keys, pointers = (", ".join(f'"{name}"' for name in names) for names in (sizes, restored))
    lines = ["@triton.autotune(", "    configs=[", *(f"        {_configuration_text(choice)}," for choice in choices)]
    lines += ["    ],", f"    key=[{keys}],"]
    return [*lines, *([f"    restore_value=[{pointers}],"] if restored else []), ")"]


def _configuration_text(choice: Configuration) -> str:
    blocks = ", ".join(f'"{name}": {size}' for name, size in choice.blocks)
    stages = f", num_stages={choice.num_stages}"
    return f"triton.Config({{{blocks}}}, num_warps={choice.num_warps}{stages})"


def launch_options(choices: list[Configuration]) -> list[str]:
    """Keywords of a launch that nothing tunes."""
    if len(choices) > 1:
        return []
    (only,) = choices
    blocks = [f"{name}={size}" for name, size in only.blocks]
    return [*blocks, f"num_warps={only.num_warps}", f"num_stages={only.num_stages}"]


def grid_text(kernel: PlainKernel, choices: list[Configuration]) -> str:
    """The grid: numbers, or where tile sizes are tuned a function of them."""
    tuned = set(kernel.blocks.values()) if len(choices) > 1 else set()
    fixed = dict(choices[0].blocks)
    sizes = [
        f'triton.cdiv({count}, meta["{block}"])' if block in tuned else str(-(-count // fixed.get(block, 1)))
        for count, block in kernel.grid
    ]
    return f"{'lambda meta: ' if tuned else ''}({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
