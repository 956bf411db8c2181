"""The correctness stage: input families, repeats, and the proof that generated kernels make the answer."""

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from services.contracts import ErrorReport, EvaluateRequest, FamilyResult, TolerancePolicy, Verdict
from services.sandbox.judge.candidate import open_candidate
from services.sandbox.judge.compare import DOWNGRADE_CEILING, repeat_difference
from services.sandbox.judge.families import REQUIRED, Family
from services.sandbox.judge.outcome import Stop, blame_candidate, blame_op
from services.sandbox.judge.reference import (
    Checked,
    Question,
    Reference,
    Unanswerable,
    check_answer,
    failed_family,
)
from services.sandbox.judge.subject import Answer, Subject, UnsupportedOutput
from services.sandbox.replies import Forward, Launch
from services.sandbox.runners import RunnerFault, RunnerKind

_POISON = float("nan")
_OTHER_POISON = -7.25
_KEPT_QUESTIONS = 3
_LEAST_SHARE = 0.01
"""Of the bytes that a forward moves, what its generated kernels must move."""


@dataclass
class Findings:
    """What correctness has seen so far; kept when the ladder stops."""

    families: list[FamilyResult] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    """The first few that were answered, inputs as given first."""
    first: Answer | None = None
    """The candidate's counted answer to inputs as given."""
    notes: list[str] = field(default_factory=list)

    @property
    def forward(self) -> Forward | None:
        """The candidate's counted forward."""
        return self.first.forward if self.first else None

    @property
    def launches(self) -> list[Launch]:
        """Launches of generated kernels in that forward."""
        return self.forward.launches if self.forward else []


def run_families(
    candidate: Subject,
    questions: Iterable[Question | FamilyResult],
    policy: TolerancePolicy,
    budget_s: float,
    limit_s: float,
    findings: Findings,
) -> None:
    """Ask the candidate every question that fits the budget. Raises Stop at the first failure.

    The required families and one more run past the budget, up to the limit. A precision downgrade waits for the other
    families: one of them may show plainly wrong values.
    """
    start, asked, downgrade = time.monotonic(), 0, None
    for question in questions:
        if isinstance(question, FamilyResult):
            findings.families.append(question)
            continue
        spent = time.monotonic() - start
        if asked > len(REQUIRED) and spent + spent / asked > budget_s:
            findings.notes.append(f"{asked} of {len(Family)} families: more would take over {budget_s:.0f} s")
            break
        if spent > limit_s:
            raise _too_slow(asked, spent)
        checked = _ask(candidate, question, policy, findings)
        asked += 1
        findings.families.append(checked.result)
        if checked.verdict is Verdict.PRECISION_DOWNGRADE or (downgrade and _is_small(checked)):
            downgrade = downgrade or checked
        elif checked.verdict:
            raise Stop(checked.verdict, _summary(checked), _spoiled_memory(checked))
    if downgrade:
        raise Stop(Verdict.PRECISION_DOWNGRADE, _summary(downgrade))


def check_repeat(candidate: Subject, policy: TolerancePolicy, findings: Findings) -> None:
    """Ask the first question again, other fresh memory behind it: the same answer is due."""
    question, first = findings.questions[0], findings.first
    if first is None:
        return
    with blame_candidate("when asked again with the same inputs"):
        again = candidate.ask(
            question.tree, question.values, seed=question.seed, fill_uninitialized=_OTHER_POISON,
            expected=question.answer.tree,
        )  # fmt: skip
    checked = _judged(question, again, policy)
    if checked.verdict:
        message = f"the same inputs gave another answer the second time: {checked.result.message}"
        failed = failed_family(question, Verdict.NONDETERMINISTIC, message)
        findings.families.append(failed.result)
        raise Stop(Verdict.NONDETERMINISTIC, f"{message[0].upper()}{message[1:]}.")
    differences = [repeat_difference(a, b) for a, b in zip(first.outputs, again.outputs, strict=True)]
    if any(differences):
        findings.notes.append(f"two calls with the same inputs differ by {max(differences):.2g}, within tolerance")


def prove_kernels(reference: Reference, request: EvaluateRequest, findings: Findings) -> None:
    """In a fresh process whose generated kernels do nothing, some answer must fail. Raises Stop."""
    if not findings.launches:
        raise Stop(
            Verdict.NO_GENERATED_KERNEL,
            "The answers are right, but forward launched no @triton.jit kernel: PyTorch did the work.",
        )
    _refuse_hidden_work(findings)
    with open_candidate(reference, request, RunnerKind.INTERPRET) as idle:
        for question in findings.questions:
            try:
                answer = idle.ask(
                    question.tree, question.values, seed=question.seed, kernels_disabled=True,
                    fill_uninitialized=0.0, expected=question.answer.tree,
                )  # fmt: skip
            except (RunnerFault, UnsupportedOutput):
                return
            if answer.mutated or _judged(question, answer, request.op.policy).verdict:
                return
    names = ", ".join(sorted({launch.kernel for launch in findings.launches}))
    raise Stop(
        Verdict.DECOY_KERNEL,
        f"The answers stay right with every generated kernel ({names}) switched off: PyTorch did the work.",
    )


def _refuse_hidden_work(findings: Findings) -> None:
    """A kernel that only copies, or signs, what was computed elsewhere. Raises Stop."""
    forward, eager = findings.forward, findings.questions[0].answer.forward
    if forward is None or forward.provenance is None or forward.aten is None:
        return
    seen, names = forward.provenance, ", ".join(sorted({launch.kernel for launch in forward.launches}))
    if seen.unseen:
        raise Stop(
            Verdict.DECOY_KERNEL,
            f"Forward read {seen.unseen[0]} values that no PyTorch call and no kernel of it had made: keep the work in "
            "kernels (NumPy, Python lists and switched-off dispatch do not run on the GPU).",
        )
    hidden = set(seen.unread_inputs) - set(eager.provenance.unread_inputs if eager.provenance else ())
    if hidden:
        raise Stop(Verdict.DECOY_KERNEL, f"No kernel and no PyTorch call of forward has read input {min(hidden)}.")
    if not seen.from_kernels:
        raise Stop(Verdict.DECOY_KERNEL, f"No output was computed from what the kernels ({names}) wrote.")
    own = sum((launch.bytes_read or 0) + (launch.bytes_written or 0) for launch in forward.launches)
    library = sum(call.bytes_read + call.bytes_written for call in forward.aten)
    if own < _LEAST_SHARE * (own + library):
        raise Stop(
            Verdict.DECOY_KERNEL,
            f"The kernels ({names}) moved {own} of the {own + library} bytes of one forward: PyTorch did the work.",
        )


def other_questions(reference: Reference) -> Iterator[Question | FamilyResult]:
    """Questions of every family but the first, each drawn when it is needed; or why a family says nothing here.

    Beyond the required ones in a secret order: who is slow, or plays slow, does not know which are left out.
    """
    others = [family for family in Family if family not in REQUIRED]
    random.Random(reference.seeds.secret).shuffle(others)  # noqa: S311 (the seed itself is the secret)
    for family in [*REQUIRED[1:], *others]:
        yield draw_question(reference, family)


def draw_question(reference: Reference, family: Family) -> Question | FamilyResult:
    """One question, or a skipped result. Raises Stop where the reference's process is gone."""
    seed = reference.seeds.family(family)
    try:
        with blame_op(f"on inputs {family}"):
            return reference.question(family, seed)
    except Unanswerable as reason:
        return FamilyResult(workload="default", family=family, seed=seed, passed=False, skipped=str(reason))


def _ask(candidate: Subject, question: Question, policy: TolerancePolicy, findings: Findings) -> Checked:
    count = findings.first is None
    try:
        with blame_candidate(f"on inputs {question.family}"):
            answer = candidate.ask(
                question.tree, question.values, count=count, seed=question.seed, fill_uninitialized=_POISON,
                expected=question.answer.tree,
            )  # fmt: skip
    except Stop as stop:
        findings.families.append(failed_family(question, stop.verdict, stop.summary).result)
        raise
    _refuse_hidden_fault(answer)
    if count:
        findings.first = answer
    if len(findings.questions) < _KEPT_QUESTIONS:
        findings.questions.append(question)
    return _judged(question, answer, policy)


def _too_slow(asked: int, spent_s: float) -> Stop:
    message = f"{asked} calls took {spent_s:.0f} s in the interpreter: too slow to be judged without a GPU"
    return Stop(Verdict.TIMEOUT, f"{message[0].upper()}{message[1:]}.", ErrorReport(kind="Timeout", message=message))


def _refuse_hidden_fault(answer: Answer) -> None:
    """A kernel that fails and is replaced by something else must not count as a kernel that ran."""
    for launch in answer.forward.launches:
        if launch.failed:
            report = ErrorReport(kind="KernelFailed", message=launch.failed, kernel=launch.kernel, line=launch.line)
            verdict = Verdict.ILLEGAL_MEMORY if launch.failed.startswith("OutOfBounds") else Verdict.RUNTIME_ERROR
            raise Stop(verdict, f"{launch.kernel} failed and forward went on without it: {launch.failed}", report)


def _judged(question: Question, answer: Answer, policy: TolerancePolicy) -> Checked:
    """Memory first: an answer that came with a spoiled input or neighbour is none."""
    if not answer.canaries_intact:
        message = "memory beside a tensor was overwritten"
        return failed_family(question, Verdict.ILLEGAL_MEMORY, message)
    if answer.mutated:
        message = f"input {answer.mutated[0]} was changed by the call"
        return failed_family(question, Verdict.INPUT_MUTATED, message)
    return check_answer(question, answer.tree, answer.outputs, policy)


def _is_small(checked: Checked) -> bool:
    """After a downgrade: rounding on values of very different magnitude shows in few places."""
    errors = [output.candidate_error for output in checked.result.outputs]
    return checked.verdict is Verdict.WRONG_VALUES and max(errors) <= DOWNGRADE_CEILING


def _spoiled_memory(checked: Checked) -> ErrorReport | None:
    if checked.verdict is not Verdict.ILLEGAL_MEMORY:
        return None
    return ErrorReport(kind="GuardOverwritten", message=checked.result.message)


def _summary(checked: Checked) -> str:
    label = checked.verdict.label.capitalize() if checked.verdict else "Passed"
    return f"{label} on inputs {checked.result.family}: {checked.result.message}."
