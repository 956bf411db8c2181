"""The compiler seed across its borders: traced by the runner, rewritten, read, run and judged."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.contracts import (
    AtenGraph,
    EvaluateRequest,
    OpSpec,
    Proposer,
    ProposeRequest,
    ProposeResult,
    ScreenRequest,
    ScreenStatus,
    Verdict,
)
from services.inference.seed import propose_seed
from services.sandbox.judge.ladder import evaluate
from services.sandbox.judge.screening import screen
from services.sandbox.runner.graph_export import export_graph
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings
from tests.integration.small_ops import LIBRARY_ONLY, OPS, POLAR, SORTING, SmallOp

ROOT = Path(__file__).resolve().parents[2]
MODELS = {path.stem: path.read_text() for path in sorted((ROOT / "tests" / "cases" / "models").glob("*.py"))}
SAMPLES = sorted((ROOT / "webapp" / "ops" / "samples").glob("*.py"))
ALLOWED_IMPORTS = {"torch", "torch.nn", "torch.nn.functional", "triton", "triton.language", "triton.language.extra"}


def traced(source: str) -> AtenGraph:
    """The graph of an op of these tests, by the exporter itself."""
    namespace: dict[str, Any] = {"__name__": "op"}
    exec(compile(source, "op.py", "exec"), namespace)  # noqa: S102  the tests' own source
    values = namespace["get_init_inputs"]()
    return AtenGraph.model_validate(export_graph(namespace["Model"](*values), namespace["get_inputs"](), values))


def seeded(name: str, source: str, graph: AtenGraph | None = None) -> ProposeResult:
    """What the seed answers for an op."""
    request = ProposeRequest(
        turn_id=name,
        proposer=Proposer.SEED,
        op=OpSpec(op_id=name, name=name.replace("_", " "), source=source),
        graph=graph or traced(source),
    )
    return propose_seed(request)


def source_of(result: ProposeResult) -> str:
    """The one proposal's source."""
    assert result.proposals, result.reason
    assert result.proposals[0].source is not None
    return result.proposals[0].source


SOURCES = {name: op.source for name, op in OPS.items()} | {path.stem: path.read_text() for path in SAMPLES}
NAMES = [*SOURCES, *MODELS]


@pytest.fixture(scope="session")
def seeds() -> dict[str, str]:
    """Seed of every op."""
    return {name: source_of(seeded(name, source)) for name, source in (SOURCES | MODELS).items()}


@pytest.fixture(scope="session")
def interpreted(seeds: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Outcome of each seed against its op in the interpreter."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, source in (SOURCES | MODELS).items():
        (folder / f"{name}.op.py").write_text(source)
        (folder / f"{name}.seed.py").write_text(seeds[name])
    command = [sys.executable, "-W", "ignore", "-m", "tests.integration.interpret", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcome: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_computes_what_the_op_computes(name: str, interpreted: dict[str, dict[str, Any]]) -> None:
    assert interpreted[name]["problem"] == ""


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_random_seed_gives_the_same_module(name: str, interpreted: dict[str, dict[str, Any]]) -> None:
    assert interpreted[name]["same_start"]


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_reads_as_if_made_by_hand(name: str, seeds: dict[str, str]) -> None:
    source = seeds[name]
    tree = ast.parse(source)
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imports <= ALLOWED_IMPORTS
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    made_by_a_machine = ("tmp", "in_ptr", "out_ptr0", "buf", "arg0", "xindex", "r0_", "xmask", "XBLOCK")
    assert not {each for each in names if each.startswith(made_by_a_machine)}
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    assert kernels
    assert all(ast.get_docstring(kernel) for kernel in kernels)
    for kernel in kernels:
        read = {node.id for part in kernel.body for node in ast.walk(part) if isinstance(node, ast.Name)}
        assert {argument.arg for argument in kernel.args.args} <= read, f"{kernel.name} has a dead parameter"


def test_the_seeds_are_clean_for_the_linter(seeds: dict[str, str], tmp_path: Path) -> None:
    for name, source in seeds.items():
        (tmp_path / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("op", "reason"), [(LIBRARY_ONLY, "library calls (aten."), (SORTING, "sort_with_index"), (POLAR, "aten.polar")]
)
def test_what_cannot_be_rewritten_is_said(op: SmallOp, reason: str) -> None:
    result = seeded("op", op.source)
    assert not result.proposals
    assert result.reason.startswith("no seed: ")
    assert reason in result.reason


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_passes_from_upload(path: Path, runners: Runners, sandbox_settings: SandboxSettings) -> None:
    op = OpSpec(op_id=path.stem, name=path.stem, source=path.read_text())
    report = screen(ScreenRequest(op=op), runners, settings=sandbox_settings)
    assert report.status is ScreenStatus.ACCEPTED, report.blockers
    assert report.graph is not None, report.graph_error
    source = source_of(seeded(path.stem, op.source, report.graph))
    request = EvaluateRequest(candidate_id=path.stem, op=op, source=source)
    evaluation = evaluate(request, runners, settings=sandbox_settings)
    assert evaluation.verdict is Verdict.PASSED, evaluation.feedback
    assert all(kernel.compiled is not None for kernel in evaluation.kernels)
    assert evaluation.estimate is not None
