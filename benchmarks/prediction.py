"""How good the host backend's predictions are: predicted against measured speedup of the seeds of the sample ops.

    python benchmarks/prediction.py collect predicted.json     # no GPU: screen, propose and judge every sample
    python benchmarks/prediction.py measure predicted.json measured.json     # on the target GPU: torch and triton only

`measure` judges nothing: it runs our own seeds on our own samples, and is no sandbox.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "webapp" / "ops" / "samples"
TARGET = "h200"


def collect(path: Path, folder: Path) -> None:
    """Write each op's source, its seed and what the host backend says of it."""
    sys.path.insert(0, str(ROOT))
    from services.contracts import EvaluateRequest, OpSpec, Proposer, ProposeRequest, ScreenRequest
    from services.inference.seed import propose_seed
    from services.sandbox.judge.ladder import evaluate
    from services.sandbox.judge.screening import screen
    from services.sandbox.runners import Runners

    rows = []
    with Runners() as runners:
        for file in sorted(folder.glob("[a-z]*.py")):
            op = OpSpec(op_id="0", name=file.stem, source=file.read_text())
            report = screen(ScreenRequest(op=op, target=TARGET), runners, lambda stage: None)
            request = ProposeRequest(
                turn_id="0",
                proposer=Proposer.SEED,
                op=op,
                facts=report.facts,
                graph=report.graph,
                graph_error=report.graph_error,
                target=TARGET,
            )
            result = propose_seed(request)
            row: dict[str, Any] = {"op": op.name, "reference": op.source, "reason": result.reason}
            if result.proposals and (source := result.proposals[0].source):
                judged = evaluate(
                    EvaluateRequest(candidate_id="0", op=op, source=source, target=TARGET), runners, lambda stage: None
                )
                row |= {
                    "candidate": source,
                    "verdict": judged.verdict,
                    "predicted": judged.predicted_speedup,
                    "estimate": judged.estimate.model_dump(mode="json") if judged.estimate else None,
                }
            rows.append(row)
            print(op.name, row.get("verdict", result.reason), row.get("predicted"), flush=True)
            path.write_text(json.dumps(rows, indent=1))


def measure(source: Path, destination: Path, *, compiled: bool) -> None:
    """Time reference, torch.compile (where `compiled`) and candidate on this GPU, in microseconds.

    `gpu`: one call of many in a CUDA graph, so only what the GPU does, as the prediction means it. `call`: one call
    from Python with cold L2, host overhead included, which is most of it for ops as small as these.
    """
    import torch

    rows = json.loads(source.read_text())
    for row in rows:
        if "candidate" in row:
            try:
                row |= _measured(row, compiled)
            except Exception as error:  # noqa: BLE001 (one op that fails is one row)
                row["failed"] = f"{type(error).__name__}: {error}"[:300]
            destination.write_text(json.dumps(rows, indent=1))
            torch._dynamo.reset()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    columns = ("predicted", "measured", "against_compile", "eager_gpu_us", "candidate_gpu_us", "max_error")
    print(f"{'op':<24}" + "".join(f"{column:>18}" for column in columns))
    for row in rows:
        figures = "".join(f"{row.get(column, float('nan')):>18.3g}" for column in columns)
        print(f"{row['op']:<24}" + (row.get("failed") or (figures if "candidate" in row else row["reason"])))


def _measured(row: dict[str, Any], compiled: bool) -> dict[str, float]:
    import torch
    from triton.testing import do_bench, do_bench_cudagraph

    reference, candidate = (_load(role, row["op"], row[role]) for role in ("reference", "candidate"))
    torch.manual_seed(0)
    found: dict[str, float] = {}
    with torch.device("cuda"), torch.no_grad():
        model = reference.Model(*reference.get_init_inputs()).eval()
        inputs = [value.cuda() if torch.is_tensor(value) else value for value in reference.get_inputs()]
        ours = candidate.ModelNew(*reference.get_init_inputs()).eval()
        ours.load_state_dict(model.state_dict())
        started = time.perf_counter()
        got, expected = ours(*inputs), model(*inputs)
        torch.cuda.synchronize()
        found["first_call_s"] = time.perf_counter() - started
        found["max_error"] = _error(got, expected)
        calls: dict[str, Callable[..., Any]] = {"eager": model, "candidate": ours}
        if compiled:
            calls["compiled"] = torch.compile(model)
            calls["compiled"](*inputs)
        for name, call in calls.items():
            run = partial(call, *inputs)
            found[f"{name}_call_us"] = 1e3 * do_bench(run, warmup=50, rep=200, return_mode="median")
            found[f"{name}_gpu_us"] = 1e3 * do_bench_cudagraph(run, rep=100, return_mode="median")
    found["measured"] = found["eager_gpu_us"] / found["candidate_gpu_us"]
    if compiled:
        found["against_compile"] = found["compiled_gpu_us"] / found["candidate_gpu_us"]
    return found


def _load(role: str, op: str, source: str) -> ModuleType:
    """Triton reads a kernel's source from its file, so the source becomes one."""
    folder = Path(tempfile.mkdtemp(prefix="prediction-"))
    name = f"{role}_{op}"
    (folder / f"{name}.py").write_text(source)
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def _error(got: Any, expected: Any) -> float:
    """Largest error over all tensors of the output, relative to the output's rms."""
    import torch

    if torch.is_tensor(expected):
        wide, other = expected.double(), got.double()
        same = (wide == other) | (wide.isnan() & other.isnan())
        error = torch.where(same, 0.0, (other - wide).abs())
        return float(error.max() / wide[wide.isfinite()].square().mean().sqrt().clamp_min(1e-30))
    if isinstance(expected, dict):
        return max(_error(got[key], expected[key]) for key in expected)
    return max(_error(one, other) for one, other in zip(got, expected, strict=True))


def main() -> None:
    """Collect or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="no GPU needed")
    collecting.add_argument("predicted", type=Path)
    collecting.add_argument("--ops", type=Path, default=SAMPLES, help="folder of ops in KernelBench format")
    measuring = commands.add_parser("measure", help="on the target GPU")
    measuring.add_argument("predicted", type=Path)
    measuring.add_argument("measured", type=Path)
    measuring.add_argument("--no-compile", action="store_true", help="leave torch.compile out: a second or more an op")
    arguments = parser.parse_args()
    if arguments.command == "collect":
        collect(arguments.predicted, arguments.ops)
    else:
        measure(arguments.predicted, arguments.measured, compiled=not arguments.no_compile)


if __name__ == "__main__":
    main()
