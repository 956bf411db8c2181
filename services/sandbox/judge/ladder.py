"""The ladder of the host backend: lint, load, correctness, compile, estimate. It stops at the first failure."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain

from celery.exceptions import SoftTimeLimitExceeded

from services.contracts import (
    Backend,
    ErrorReport,
    Estimate,
    EvaluateRequest,
    Evaluation,
    FamilyResult,
    IsolationLevel,
    LintFinding,
    Stage,
    StageResult,
    StageStatus,
    Verdict,
    target_spec,
)
from services.sandbox.judge import EVALUATOR_VERSION
from services.sandbox.judge.candidate import open_candidate
from services.sandbox.judge.correctness import (
    Findings,
    check_repeat,
    draw_question,
    other_questions,
    prove_kernels,
    run_families,
)
from services.sandbox.judge.families import Family
from services.sandbox.judge.feedback import write_feedback
from services.sandbox.judge.lint import lint, reaches_around
from services.sandbox.judge.outcome import Stop, blame_candidate, blame_op
from services.sandbox.judge.prediction import (
    aten_launches,
    kernel_launches,
    kernel_reports,
    library_calls,
    need_of,
    predict,
    refuse_impossible_counts,
    refuse_other_launches,
)
from services.sandbox.judge.reference import (
    Question,
    Reference,
    Seeds,
    Unanswerable,
    open_reference,
    secret_seed,
)
from services.sandbox.judge.subject import Subject
from services.sandbox.replies import KernelCompile
from services.sandbox.runners import RunnerKind, Runners
from services.sandbox.settings import SandboxSettings
from services.sandbox.versions import versions

ReportProgress = Callable[[Stage], None]


def evaluate(
    request: EvaluateRequest,
    runners: Runners,
    progress: ReportProgress = lambda stage: None,
    settings: SandboxSettings | None = None,
    only: tuple[Family, int] | None = None,
) -> Evaluation:
    """Judge a candidate on the host backend. Never raises: our own failures are `infrastructure`.

    `only` asks one family under one seed, to see an earlier failure again.
    """
    return _Ladder(request, runners, progress, settings or SandboxSettings(), only).run()


def failed_evaluation(candidate_id: str, attempt: int, target: str, reason: str) -> Evaluation:
    """An Evaluation for a worker that could not even begin; nothing ran, so nothing was shut in."""
    return Evaluation(
        candidate_id=candidate_id,
        attempt=attempt,
        verdict=Verdict.INFRASTRUCTURE,
        summary=f"The sandbox itself failed, not the candidate: {reason}",
        error=ErrorReport(kind="InfrastructureFault", message=reason),
        backend=Backend.HOST,
        target=target,
        isolation=IsolationLevel.NONE,
        versions=versions(),
        evaluator_version=EVALUATOR_VERSION,
    )


@dataclass
class _Ladder:
    request: EvaluateRequest
    runners: Runners
    progress: ReportProgress
    settings: SandboxSettings
    only: tuple[Family, int] | None
    stages: list[StageResult] = field(default_factory=list)
    hints: list[LintFinding] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    compiled: list[KernelCompile] = field(default_factory=list)
    estimate: Estimate | None = None
    estimate_error: str = ""

    def run(self) -> Evaluation:
        start = time.monotonic()
        try:
            stop = self._climb()
        except Stop as stopped:
            stop = stopped
        except SoftTimeLimitExceeded:
            stop = _out_of_time(self.settings.task_s)
        except Exception as fault:  # noqa: BLE001 (whatever breaks in the judge is ours, never the candidate's)
            stop = _infrastructure(fault)
        try:
            return self._evaluation(stop, time.monotonic() - start)
        except Exception as fault:  # noqa: BLE001 (an answer is due whatever it holds)
            request, reason = self.request, f"the verdict {stop.verdict} could not be told: {fault}"
            return failed_evaluation(request.candidate_id, request.attempt, request.target, reason)

    def _climb(self) -> Stop:
        with self._stage(Stage.LINT):
            self.hints = lint(self.request.source)
            target_spec(self.request.target)
        with ExitStack() as alive:
            self._judge(alive)
        return Stop(Verdict.PASSED, self._praise())

    def _judge(self, alive: ExitStack) -> None:
        op, target, wall_s = self.request.op, self.request.target, self.settings.call_s
        candidate_alive = alive.enter_context(ExitStack())
        with self._stage(Stage.LOAD):
            with blame_op("to load"):
                opened = open_reference(self.runners, op, self._seeds(), target=target, wall_s=wall_s)
                reference = alive.enter_context(opened)
            first = _first_question(reference)
            candidate = candidate_alive.enter_context(open_candidate(reference, self.request, RunnerKind.INTERPRET))
        with self._stage(Stage.CORRECTNESS) as notes:
            self._test(candidate, reference, first)
            candidate_alive.close()
            prove_kernels(reference, self.request, self.findings)
            notes += [*self.findings.notes, *reference.notes]
        with self._stage(Stage.COMPILE) as notes:
            self.compiled = self._compile(reference, first)
            notes += _failed_configurations(self.compiled)
        with self._stage(Stage.ESTIMATE):
            self._predict(reference, first)

    def _test(self, candidate: Subject, reference: Reference, first: Question) -> None:
        policy, settings = self.request.op.policy, self.settings
        questions: Iterator[Question | FamilyResult] = chain([first], other_questions(reference))
        if self.only and self.only[0] is not Family.AS_GIVEN:
            questions = iter([draw_question(reference, self.only[0])])
        elif self.only:
            questions = iter([first])
        limit_s = settings.task_s / 2
        run_families(candidate, questions, policy, settings.family_budget_s, limit_s, self.findings)
        if not self.findings.questions:
            raise Stop(Verdict.INVALID_REFERENCE, "No input family could be judged.", _no_families())
        check_repeat(candidate, policy, self.findings)

    def _seeds(self) -> Seeds:
        return Seeds.behind(*self.only) if self.only else Seeds(secret_seed())

    def _compile(self, reference: Reference, first: Question) -> list[KernelCompile]:
        """Compile for the target what the interpreter launched. Raises Stop."""
        with open_candidate(reference, self.request, RunnerKind.COMPILE) as candidate:
            buffers = candidate.filled_buffers(first.tree, first.values)
            with blame_candidate(f"to compile for {self.request.target}", runtime=Verdict.COMPILE_ERROR):
                compiled = candidate.runner.compile_target(first.tree, buffers)
        launched = {launch.kernel for launch in self.findings.launches}
        missing = sorted(launched - {kernel.kernel for kernel in compiled})
        if missing:
            raise Stop(Verdict.COMPILE_ERROR, f"{', '.join(missing)} ran here but was not compiled.", _missing(missing))
        return compiled

    def _predict(self, reference: Reference, first: Question) -> None:
        forward, calls = self.findings.forward, first.answer.forward.aten
        if forward is None or calls is None:
            self.estimate_error = "nothing was counted"
            return
        try:
            reach = reaches_around(self.request.source)
            if reach:
                raise ValueError(f"the source reaches into its own process ({reach}), where the counting is done")
            need = need_of(first.tree, reference.loaded, first.answer.tree, calls)
            refuse_other_launches(forward.launches, self.compiled)
            own = [*kernel_launches(forward.launches, self.compiled), *aten_launches(forward.aten or [])]
            refuse_impossible_counts(own, calls, first.answer.tree)
            self.estimate = predict(need, calls, own, target_spec(self.request.target))
        except ValueError as reason:
            self.estimate_error = str(reason)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[list[str]]:
        """Time a stage; what is appended to the yielded list becomes its note."""
        self.progress(stage)
        start, notes = time.monotonic(), list[str]()
        try:
            yield notes
        except BaseException as error:
            self._ended(stage, StageStatus.FAILED, start, str(error))
            raise
        self._ended(stage, StageStatus.PASSED, start, "; ".join(notes))

    def _ended(self, stage: Stage, status: StageStatus, start: float, note: str) -> None:
        seconds = time.monotonic() - start
        self.stages.append(StageResult(stage=stage, status=status, seconds=seconds, note=note))

    def _praise(self) -> str:
        judged = sum(result.passed for result in self.findings.families)
        right = f"Right on {judged} input families"
        if self.estimate is None:
            return f"{right}; no prediction: {self.estimate_error}."
        return (
            f"{right}; predicted {self.estimate.predicted_speedup:.2f}× eager on {self.request.target} (not measured)."
        )

    def _evaluation(self, stop: Stop, seconds: float) -> Evaluation:
        forward = self.findings.forward
        evaluation = Evaluation(
            candidate_id=self.request.candidate_id,
            attempt=self.request.attempt,
            verdict=stop.verdict,
            summary=stop.summary,
            backend=Backend.HOST,
            target=self.request.target,
            stages=self.stages,
            lint=self.hints,
            error=stop.error,
            families=self.findings.families,
            kernels=kernel_reports(forward, self.compiled) if forward else [],
            library_ops=library_calls(forward) if forward else {},
            estimate=self.estimate,
            estimate_error=self.estimate_error,
            isolation=self.runners.isolation.level,
            versions=versions(),
            evaluator_version=EVALUATOR_VERSION,
            seconds=seconds,
        )
        return evaluation.model_copy(update={"feedback": write_feedback(evaluation, self.request.source)})


def _first_question(reference: Reference) -> Question:
    """Inputs as given, counted. Raises Stop where the op itself is at fault."""
    try:
        with blame_op("on its own inputs"):
            question = reference.settle(count=True)
    except Unanswerable as reason:
        report = ErrorReport(kind="InvalidReference", message=str(reason))
        raise Stop(Verdict.INVALID_REFERENCE, f"On inputs as given {reason}.", report) from reason
    if question.answer.mutated:
        report = ErrorReport(kind="InvalidReference", message="forward changes its own input")
        raise Stop(Verdict.INVALID_REFERENCE, "The op changes its own input: screen it again.", report)
    return question


def _infrastructure(fault: Exception) -> Stop:
    summary = f"The sandbox itself failed, not the candidate: {type(fault).__name__}: {fault}"
    detail = "".join(traceback.format_exception(fault))[-4000:]
    return Stop(
        Verdict.INFRASTRUCTURE, summary, ErrorReport(kind=type(fault).__name__, message=str(fault), detail=detail)
    )


def _out_of_time(limit_s: int) -> Stop:
    message = f"judging it took longer than {limit_s} s in all: too slow to be judged without a GPU"
    return Stop(Verdict.TIMEOUT, f"{message[0].upper()}{message[1:]}.", ErrorReport(kind="Timeout", message=message))


def _no_families() -> ErrorReport:
    return ErrorReport(kind="InvalidReference", message="the reference gives no usable answer under any family")


def _missing(kernels: Sequence[str]) -> ErrorReport:
    message = "the kernel was launched in the interpreter, and not when forward ran for the target"
    return ErrorReport(kind="NotCompiled", message=message, kernel=", ".join(kernels))


def _failed_configurations(compiled: Sequence[KernelCompile]) -> list[str]:
    return [f"{kernel.kernel}: {failure}" for kernel in compiled for failure in kernel.failed_configurations]
