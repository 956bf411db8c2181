"""Runs seeds against their ops in the mended interpreter and prints what came out.

A program of its own, because Triton decides at import whether it interprets. Argument: a folder with NAME.op.py and
NAME.seed.py. Prints one JSON object: name -> {"problem": text or "", "error": largest relative
error, "same_start": whether the same random seed gives the same initial values}.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from services.sandbox.runner import interpreter

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def main(folder: Path) -> None:
    """Compare every pair in the folder."""
    torch.set_num_threads(1)
    interpreter.install()
    results = {}
    for op in sorted(folder.glob("*.op.py")):
        name = op.name.removesuffix(".op.py")
        try:
            results[name] = compare(load(op), load(folder / f"{name}.seed.py"))
        except Exception as error:  # noqa: BLE001  reported to the test
            results[name] = {"problem": f"{type(error).__name__}: {error}"[:500], "error": None}
    print(json.dumps(results))


def load(path: Path) -> ModuleType:
    """Import one file."""
    name = path.name.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compare(op: ModuleType, seed: ModuleType) -> dict[str, Any]:
    """State by name and value, structure, shape, dtype and values."""
    reference, candidate = made(op.Model, op), made(seed.ModelNew, op)
    own, other = reference.state_dict(), candidate.state_dict()
    if list(own) != list(other):
        return {"problem": f"state {list(other)} instead of {list(own)}", "error": None}
    same_start = all(torch.equal(one, two) for one, two in zip(own.values(), other.values(), strict=True))
    for tensor in own.values():
        if tensor.is_floating_point():
            tensor.add_(torch.rand(tensor.shape).to(tensor.dtype) * 0.5)
    candidate.load_state_dict(own)
    torch.manual_seed(3)
    inputs = op.get_inputs()
    with torch.no_grad(), interpreter.recording() as launches:
        expected, got = reference(*inputs), candidate(*inputs)
    if not launches:
        return {"problem": "no kernel was launched", "error": None}
    if structure(expected) != structure(got):
        return {"problem": f"{structure(got)} instead of {structure(expected)}", "error": None}
    pairs = list(zip(leaves(expected), leaves(got), strict=True))
    wrong = [index for index, (one, two) in enumerate(pairs) if not close(one, two)]
    return {
        "problem": f"outputs {wrong} differ" if wrong else "",
        "error": max(relative_error(one, two) for one, two in pairs),
        "same_start": same_start,
    }


def made(model: Any, op: ModuleType) -> Any:
    """A module under a fixed seed, in eval mode."""
    torch.manual_seed(0)
    return model(*op.get_init_inputs()).eval()


def structure(value: Any) -> Any:
    """Nesting, with shape and dtype of each tensor."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, dict):
        return {key: structure(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(structure, value)]
    return value


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [leaf for item in items for leaf in leaves(item)]


def relative_error(expected: torch.Tensor, got: torch.Tensor) -> float:
    """Largest |got - expected| / (|expected| + rms) where the expected value is finite."""
    finite = expected.double().isfinite()
    one, two = expected.double()[finite], got.double()[finite]
    if one.numel() == 0:
        return 0.0
    return float(((one - two).abs() / (one.abs() + one.square().mean().sqrt() + 1e-30)).max())


def close(expected: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether the values agree; infinities and NaN in the same places."""
    special = ~expected.double().isfinite()
    if not torch.equal(expected.double()[special].nan_to_num(), got.double()[special].nan_to_num()):
        return False
    return relative_error(expected, got) <= TOLERANCE.get(expected.dtype, 0.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
