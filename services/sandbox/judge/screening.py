"""Screening of an uploaded op: can it be judged at all, and would a wrong answer be seen?"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from celery.exceptions import SoftTimeLimitExceeded
from torch import Tensor

from services.contracts import (
    AtenGraph,
    Finding,
    IsolationLevel,
    OpFacts,
    ScreeningReport,
    ScreenRequest,
    ScreenStatus,
    Severity,
    Stage,
    target_spec,
)
from services.sandbox.judge import EVALUATOR_VERSION
from services.sandbox.judge.facts import op_facts
from services.sandbox.judge.families import Family
from services.sandbox.judge.findings import finding
from services.sandbox.judge.gate import MutantGate
from services.sandbox.judge.input_check import check_layout, check_state, check_values
from services.sandbox.judge.op_faults import fault_finding, nan_finding
from services.sandbox.judge.outcome import told
from services.sandbox.judge.prediction import aten_launches
from services.sandbox.judge.reference import (
    FILL,
    Question,
    Reference,
    Seeds,
    Unanswerable,
    open_reference,
    outputs_equal,
    secret_seed,
)
from services.sandbox.judge.source_check import check_source
from services.sandbox.judge.state import owned_state, plain_attributes
from services.sandbox.judge.subject import Answer, UnsupportedOutput, export_inputs, read_state
from services.sandbox.replies import Tree
from services.sandbox.runners import RunnerFault, Runners
from services.sandbox.settings import SandboxSettings
from services.sandbox.versions import versions

ReportProgress = Callable[[Stage], None]

_OTHER_FILL = -2.5
_LAUNCH_BOUND_SHARE = 2 / 3


def screen(
    request: ScreenRequest,
    runners: Runners,
    progress: ReportProgress = lambda stage: None,
    settings: SandboxSettings | None = None,
) -> ScreeningReport:
    """Screen an op on the host backend. Never raises: our own failures give the status `infrastructure`."""
    return _Screening(request, runners, progress, settings or SandboxSettings()).run()


def failed_screening(op_id: str, target: str, reason: str) -> ScreeningReport:
    """A report of a worker that could not even begin; nothing ran, so nothing was shut in."""
    return ScreeningReport(
        op_id=op_id,
        status=ScreenStatus.INFRASTRUCTURE,
        findings=[finding("infrastructure", reason)],
        target=target,
        isolation=IsolationLevel.NONE,
        versions=versions(),
        evaluator_version=EVALUATOR_VERSION,
    )


class _Refused(Exception):
    """A blocker makes the rest of the screening meaningless; it is among the findings already."""


@dataclass
class _Screening:
    request: ScreenRequest
    runners: Runners
    progress: ReportProgress
    settings: SandboxSettings
    findings: list[Finding] = field(default_factory=list)
    gate: MutantGate = field(init=False)
    facts: OpFacts | None = None
    graph: AtenGraph | None = None
    graph_error: str = ""

    def __post_init__(self) -> None:
        self.gate = MutantGate(self.request.op.policy)

    def run(self) -> ScreeningReport:
        start, broken = time.monotonic(), False
        try:
            self._screen()
        except _Refused:
            pass
        except SoftTimeLimitExceeded:
            self._add("forward_timeout", f"Its screening took longer than {self.settings.task_s} s in all.")
        except Exception as fault:  # noqa: BLE001 (whatever breaks in the judge is ours, never the op's)
            broken = True
            self._add("infrastructure", f"{type(fault).__name__}: {fault}")
        return self._report(broken, time.monotonic() - start)

    def _screen(self) -> None:
        op, target = self.request.op, self.request.target
        spec = target_spec(target)
        self.progress(Stage.LINT)
        self._take(check_source(op.source))
        with ExitStack() as alive:
            self.progress(Stage.LOAD)
            with self._faults("load"):
                opened = open_reference(
                    self.runners, op, Seeds(secret_seed()), target=target, wall_s=self.settings.reference_s
                )
                reference = alive.enter_context(opened)
            seed = reference.seeds.family(Family.AS_GIVEN)
            tree, values = self._inputs(reference, seed)
            self.progress(Stage.CORRECTNESS)
            question = self._first(reference, seed, tree, values)
            self._outputs(question)
            self._repeats(reference, question)
            self._families(reference, question)
            self.progress(Stage.ESTIMATE)
            self.facts = op_facts(question, reference.loaded, spec)
            self._launch_bound(question, spec.launch_us)
            self._trace(reference, question)
            self._train_mode(reference, question)

    def _inputs(self, reference: Reference, seed: int) -> tuple[Tree, list[Tensor]]:
        runner = reference.subject.runner
        self._take(list(check_state(reference.loaded, self.settings.interpreter_bytes)))
        for name in plain_attributes(reference.loaded):
            told_name = f"{name}: .to() does not move it, and it is not randomised between tests."
            self._add("plain_tensor_attribute", told_name)
        with self._faults("get_inputs"):
            tree = runner.make_inputs(seed)
        self._take(list(check_layout(tree, reference.loaded, self.settings.interpreter_bytes)))
        with self._faults("get_inputs"):
            values = export_inputs(runner, self.runners.fence, tree)
        self._take(list(check_values(tree, values)))
        return tree, values

    def _first(self, reference: Reference, seed: int, tree: Tree, values: list[Tensor]) -> Question:
        """The counted question on inputs as given; falls back to the state as constructed for a finite answer."""
        with self._faults("forward"):
            try:
                return reference.settle(count=True)
            except Unanswerable:
                answer = reference.subject.ask(tree, values, seed=seed)
            self.findings.append(nan_finding(reference.subject, tree, values, answer))
        raise _Refused

    def _outputs(self, question: Question) -> None:
        answer = question.answer
        for index in answer.mutated:
            self._add("mutates_input", f"Input {index} ({question.tree.leaves[index].spec}) changes during the call.")
        if not answer.tree.leaves:
            self._add("no_tensor_output")
        elif all(output.numel() == 0 for output in answer.outputs):
            self._add("empty_output")
        infinite = sum(int(output.isinf().sum()) for output in answer.outputs if output.is_floating_point())
        if infinite:
            numel = sum(output.numel() for output in answer.outputs)
            self._add("infinite_output", f"{infinite} of {numel} elements; compared by position and sign.")
        self._stop_at_blockers()

    def _repeats(self, reference: Reference, question: Question) -> None:
        """Two calls with everything equal, one with other fresh memory, one with another seed of torch's generator."""
        first, again, other_fill = (self._ask(reference, question, fill=fill) for fill in (FILL, FILL, _OTHER_FILL))
        if not _same(first, again):
            if self._state_changed(reference):
                self._add("stateful_forward", "A second call with the same input gives another output.")
            else:
                self._add("random_output", "Two calls with the same inputs and the same seed differ.")
        elif not _same(first, other_fill):
            self._add("unspecified_values", "It changes with what torch.empty happens to return.")
        elif not _same(first, self._ask(reference, question, fill=FILL, seed=secret_seed())):
            self._add("random_output", "Two calls with the same inputs and other seeds differ: no value can be tested.")
        self._stop_at_blockers()

    def _families(self, reference: Reference, question: Question) -> None:
        """Run the op on every family, and show each to the mutant gate."""
        self.gate.show(question, reference)
        depends, varies = False, False
        for family in list(Family)[1:]:
            try:
                other = reference.question(family, reference.seeds.family(family))
            except Unanswerable:
                continue
            except RunnerFault as fault:
                self._add("fault_in_family", f"Inputs {family}: {told(fault.report)}")
                break
            if other.answer.tree != question.answer.tree:
                self._add("shapes_change", f"{_specs(question)} and {_specs(other)}")
                raise _Refused
            varies = varies or not outputs_equal(other.values, question.values)
            depends = depends or not outputs_equal(other.answer.outputs, question.answer.outputs)
            self.gate.show(other, reference)
        if not varies:
            self._add("inputs_never_vary", "They are the same under every seed, and integers are not varied otherwise.")
            raise _Refused
        if not depends:
            self._add("output_ignores_input", "It is the same, bit for bit, for negated, shifted and scaled inputs.")
        self.findings += self.gate.findings()

    def _launch_bound(self, question: Question, launch_us: float) -> None:
        if self.facts is None or not self.facts.eager_us:
            return
        launches = len(aten_launches(question.answer.forward.aten or []))
        if launch_us * launches > _LAUNCH_BOUND_SHARE * self.facts.eager_us:
            eager = f"Predicted {self.facts.eager_us:.3g} µs in eager mode on {self.request.target}"
            self._add("launch_bound", f"{eager}, most of it the cost of {launches} launches.")

    def _trace(self, reference: Reference, question: Question) -> None:
        buffers = reference.subject.filled_buffers(question.tree, question.values)
        try:
            self.graph = reference.subject.runner.trace(question.tree, buffers)
        except ValueError as reason:
            self.graph_error = str(reason)
        except RunnerFault as fault:
            self.graph_error = f"Tracing failed: {told(fault.report)}"

    def _train_mode(self, reference: Reference, question: Question) -> None:
        """Last, because train mode changes running statistics."""
        try:
            seed = secret_seed()
            first, second = (self._ask(reference, question, seed=s, train=True) for s in (seed, secret_seed()))
        except (RunnerFault, UnsupportedOutput):
            return
        if not _same(first, second):
            self._add("random_in_train_mode", "Two calls in train mode differ (dropout or the like).")
        elif not outputs_equal(first.outputs, question.answer.outputs):
            self._add("differs_in_train_mode", "Train mode uses batch statistics or the like.")

    def _ask(
        self, reference: Reference, question: Question, *, seed: int | None = None, fill: float | None = None,
        train: bool = False,
    ) -> Answer:  # fmt: skip
        seed = question.seed if seed is None else seed
        return reference.subject.ask(
            question.tree, question.values, seed=seed, fill_uninitialized=fill, train=train, wall_s=reference.wall_s
        )

    def _state_changed(self, reference: Reference) -> bool:
        now = read_state(reference.subject.runner, self.runners.fence, owned_state(reference.loaded))
        return any(not outputs_equal([now[name]], [reference.state[name]]) for name in now)

    @contextmanager
    def _faults(self, where: str) -> Iterator[None]:
        """Turn the op's own faults into a blocker and end the screening."""
        try:
            yield
        except RunnerFault as fault:
            self.findings.append(fault_finding(where, fault, self.settings.reference_s))
            raise _Refused from fault
        except UnsupportedOutput as unsupported:
            self._add(unsupported.code, str(unsupported))
            raise _Refused from unsupported

    def _add(self, code: str, detail: str = "", line: int | None = None) -> None:
        self.findings.append(finding(code, detail, line))

    def _take(self, findings: Sequence[Finding]) -> None:
        self.findings += findings
        self._stop_at_blockers()

    def _stop_at_blockers(self) -> None:
        if any(finding.severity is Severity.BLOCKER for finding in self.findings):
            raise _Refused

    def _report(self, broken: bool, seconds: float) -> ScreeningReport:
        refused = any(finding.severity is Severity.BLOCKER for finding in self.findings)
        status = ScreenStatus.REFUSED if refused else ScreenStatus.ACCEPTED
        return ScreeningReport(
            op_id=self.request.op.op_id,
            status=ScreenStatus.INFRASTRUCTURE if broken else status,
            findings=self.findings,
            mutants=self.gate.results(),
            facts=self.facts,
            graph=self.graph,
            graph_error=self.graph_error,
            target=self.request.target,
            isolation=self.runners.isolation.level,
            versions=versions(),
            evaluator_version=EVALUATOR_VERSION,
            seconds=seconds,
        )


def _same(first: Answer, second: Answer) -> bool:
    return first.tree == second.tree and outputs_equal(first.outputs, second.outputs)


def _specs(question: Question) -> str:
    return ", ".join(str(leaf.spec) for leaf in question.answer.tree.leaves)
