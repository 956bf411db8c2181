"""The sandbox by hand: `python -m services.sandbox evaluate|screen|doctor`. Needs no web and no broker.

Exit code 0: passed, accepted, well. 1: judged, and not. 2: wrong usage, or our own failure.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from services.contracts import (
    TARGETS,
    EvaluateRequest,
    Evaluation,
    OpSpec,
    ScreeningReport,
    ScreenRequest,
    ScreenStatus,
    Stage,
    TolerancePolicy,
    Verdict,
)
from services.sandbox.doctor import diagnose
from services.sandbox.judge.families import Family
from services.sandbox.judge.ladder import evaluate
from services.sandbox.judge.screening import screen
from services.sandbox.runners import InfrastructureFault, Runners
from services.sandbox.settings import SandboxSettings

PASSED, NOT_PASSED, BROKEN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    try:
        return int(options.command(options, SandboxSettings()))
    except (InfrastructureFault, OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BROKEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.sandbox", description=__doc__)
    commands = parser.add_subparsers(required=True)
    judge = commands.add_parser("evaluate", help="judge a candidate against an op")
    judge.add_argument("--ref", type=Path, required=True, help="the op's file")
    judge.add_argument("--cand", type=Path, required=True, help="the candidate's file")
    judge.add_argument("--family", choices=[family.value for family in Family], help="ask this input family alone")
    judge.add_argument("--seed", type=int, help="the family's seed, as an earlier answer gave it")
    judge.set_defaults(command=_evaluate)
    look = commands.add_parser("screen", help="screen an op")
    look.add_argument("ref", type=Path, help="the op's file")
    look.set_defaults(command=_screen)
    for command in (judge, look):
        command.add_argument("--target", choices=list(TARGETS), default="h200")
        command.add_argument("--policy", choices=list(TolerancePolicy), default=TolerancePolicy.STANDARD)
        command.add_argument("--json", action="store_true", help="print the whole message")
    commands.add_parser("doctor", help="check this machine").set_defaults(command=_doctor)
    return parser


def _evaluate(options: argparse.Namespace, settings: SandboxSettings) -> int:
    if (options.family is None) != (options.seed is None):
        print("error: --family and --seed belong together", file=sys.stderr)
        return BROKEN
    request = EvaluateRequest(
        candidate_id=options.cand.name,
        op=_op(options),
        source=options.cand.read_text(encoding="utf-8"),
        target=options.target,
    )
    only = (Family(options.family), options.seed) if options.family else None
    with Runners(settings) as runners:
        evaluation = evaluate(request, runners, _show, settings, only)
    print(evaluation.model_dump_json(indent=2) if options.json else evaluation.feedback)
    return _evaluation_code(evaluation)


def _screen(options: argparse.Namespace, settings: SandboxSettings) -> int:
    with Runners(settings) as runners:
        report = screen(ScreenRequest(op=_op(options), target=options.target), runners, _show, settings)
    print(report.model_dump_json(indent=2) if options.json else _told(report))
    codes = {ScreenStatus.ACCEPTED: PASSED, ScreenStatus.REFUSED: NOT_PASSED, ScreenStatus.INFRASTRUCTURE: BROKEN}
    return codes[report.status]


def _doctor(options: argparse.Namespace, settings: SandboxSettings) -> int:
    well = True
    for check in diagnose(settings):
        print(f"{'ok  ' if check.well else 'LACK'} {check.name}: {check.said}")
        if check.mend:
            print(f"     {check.mend}")
        well = well and check.well
    return PASSED if well else NOT_PASSED


def _op(options: argparse.Namespace) -> OpSpec:
    source = options.ref.read_text(encoding="utf-8")
    return OpSpec(op_id=options.ref.name, name=options.ref.stem, source=source, policy=options.policy)


def _evaluation_code(evaluation: Evaluation) -> int:
    if evaluation.verdict is Verdict.PASSED:
        return PASSED
    return BROKEN if evaluation.verdict is Verdict.INFRASTRUCTURE else NOT_PASSED


def _show(stage: Stage) -> None:
    print(f"... {stage}", file=sys.stderr, flush=True)


def _told(report: ScreeningReport) -> str:
    lines = [f"{report.status} in {report.seconds:.1f} s"]
    for item in report.findings:
        where = f" (line {item.line})" if item.line else ""
        lines += [f"{item.severity}: {item.title}{where}", f"  {item.detail}", f"  {item.mend}"]
    lines += [f"wrong answer {item.mutant}: {'caught' if item.caught else 'PASSES'}" for item in report.mutants]
    if report.facts:
        facts = report.facts
        lines.append(f"inputs {', '.join(map(str, facts.inputs))}; outputs {', '.join(map(str, facts.outputs))}")
        lines.append(f"predicted for {report.target}: eager {facts.eager_us:.4g} µs, floor {facts.floor_us:.4g} µs")
    lines.append(f"graph: {len(report.graph.nodes)} ATen calls" if report.graph else f"no graph: {report.graph_error}")
    return "\n".join(line for line in lines if line.strip())


if __name__ == "__main__":
    sys.exit(main())
