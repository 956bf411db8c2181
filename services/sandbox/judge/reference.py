"""The op's own module as the source of questions: inputs of a family, eager's answer and the float64 golden."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from services.contracts import FamilyResult, OpSpec, OutputError, TolerancePolicy, Verdict
from services.sandbox.judge.compare import ExpectedLeaf, compare_leaf, expect
from services.sandbox.judge.families import Family, apply_family
from services.sandbox.judge.state import owned_state, parameter_names, randomise
from services.sandbox.judge.structure import layout_problem
from services.sandbox.judge.subject import Answer, Subject, draw_inputs, exported, read_state, write_state
from services.sandbox.replies import Loaded, Tree
from services.sandbox.runners import Precision, Role, RunnerFault, RunnerKind, Runners

FILL = 1.5
"""What fresh memory holds while the reference runs: finite, so that what is never written does not look like NaN."""


class Unanswerable(Exception):
    """The reference gives no usable answer under this family: why, in one sentence."""


@dataclass(frozen=True)
class Question:
    """Inputs of one family with eager's answer, prepared for comparisons."""

    family: Family
    seed: int
    tree: Tree
    values: list[Tensor]
    answer: Answer
    expected: list[ExpectedLeaf]


@dataclass(frozen=True)
class Checked:
    """An answer checked against a question; `verdict` None means that it passes."""

    result: FamilyResult
    verdict: Verdict | None


@dataclass
class Reference:
    """The loaded reference with randomised state."""

    subject: Subject
    runners: Runners
    init: list[Tensor]
    """Tensors among the arguments with which the module was built."""
    seeds: "Seeds"
    original: dict[str, Tensor]
    state: dict[str, Tensor]
    wall_s: float
    notes: list[str] = field(default_factory=list)
    infinite: bool = False
    """Infinities belong to the op's answers: eager gives them on its own inputs."""

    @property
    def loaded(self) -> Loaded:
        """What the runner said of the module."""
        return self.subject.loaded

    def question(self, family: Family, seed: int, *, count: bool = False) -> Question:
        """Draw inputs under this seed and answer them. Raises Unanswerable; RunnerFault where the process is gone."""
        tree, values = draw_inputs(self.subject.runner, self.runners.fence, seed, wall_s=self.wall_s)
        apply_family(family, values, seed)
        return self.answered(family, seed, tree, values, count=count)

    def answered(self, family: Family, seed: int, tree: Tree, values: list[Tensor], *, count: bool = False) -> Question:
        """The question that these inputs make."""
        try:
            answer = self.subject.ask(tree, values, seed=seed, count=count, fill_uninitialized=FILL, wall_s=self.wall_s)
        except RunnerFault as fault:
            if family is Family.AS_GIVEN or fault.verdict is not Verdict.RUNTIME_ERROR:
                raise
            raise Unanswerable(f"the reference itself raises {fault.report.kind}: {fault.report.message}") from fault
        self._refuse_non_finite(family, answer.outputs)
        golden: Sequence[Tensor | None] = self._golden(tree, values, answer, seed) or [None] * len(answer.outputs)
        expected = [expect(output, wide) for output, wide in zip(answer.outputs, golden, strict=True)]
        return Question(family, seed, tree, values, answer, expected)

    def settle(self, *, count: bool = False) -> Question:
        """The question on inputs as given; falls back to the state as constructed where random state gives NaN."""
        seed = self.seeds.family(Family.AS_GIVEN)
        try:
            return self.question(Family.AS_GIVEN, seed, count=count)
        except Unanswerable:
            if self.state is self.original:
                raise
        self.state = self.original
        write_state(self.subject.runner, self.runners.fence, self.original)
        question = self.question(Family.AS_GIVEN, seed, count=count)
        self.notes.append("parameters as constructed: with randomised ones the reference is not finite")
        return question

    def _refuse_non_finite(self, family: Family, outputs: Sequence[Tensor]) -> None:
        nan = sum(int(output.isnan().sum()) for output in outputs if output.is_floating_point())
        infinite = sum(int(output.isinf().sum()) for output in outputs if output.is_floating_point())
        numel = sum(output.numel() for output in outputs)
        if nan:
            raise Unanswerable(f"the reference itself is NaN in {nan} of {numel} elements")
        if family is Family.AS_GIVEN:
            self.infinite = infinite > 0
        elif infinite and not self.infinite:
            raise Unanswerable(f"the reference itself overflows in {infinite} of {numel} elements")

    def _golden(self, tree: Tree, values: Sequence[Tensor], answer: Answer, seed: int) -> list[Tensor] | None:
        """Eager's answer in float64; None where it cannot be had."""
        try:
            wide = self.subject.ask(tree, values, precision=Precision.FLOAT64, seed=seed, wall_s=self.wall_s)
        except RunnerFault as fault:
            if fault.verdict is Verdict.TIMEOUT:
                raise
            self.note(f"error measured against eager itself: in float64 it raises {fault.report.kind}")
            return None
        shapes = [output.shape for output in answer.outputs]
        if wide.tree.structure != answer.tree.structure or [output.shape for output in wide.outputs] != shapes:
            self.note("error measured against eager itself: in float64 its answer has another layout")
            return None
        return [
            golden.double() if output.is_floating_point() else output
            for golden, output in zip(wide.outputs, answer.outputs, strict=True)
        ]

    def note(self, note: str) -> None:
        """Say something once about how this op is judged."""
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Seeds:
    """Every seed of one evaluation, from one secret: a failure can be seen again exactly."""

    secret: int

    @classmethod
    def behind(cls, family: Family, seed: int) -> "Seeds":
        """The seeds of the evaluation in which this family had this seed."""
        return cls(seed - Seeds(0).family(family))

    @property
    def load(self) -> int:
        """For constructing the modules."""
        return self.secret

    @property
    def state(self) -> int:
        """For randomising their parameters."""
        return self.secret + 1

    def family(self, family: Family) -> int:
        """For the inputs of a family."""
        return self.secret + 2 + list(Family).index(family)


@contextmanager
def open_reference(runners: Runners, op: OpSpec, seeds: Seeds, *, target: str, wall_s: float) -> Iterator[Reference]:
    """Load the op under a secret seed, with randomised state."""
    with ExitStack() as stack:
        runner = stack.enter_context(runners.spawn(RunnerKind.INTERPRET, Role.REFERENCE, target=target, wall_s=wall_s))
        loaded = runner.load(op.source, "Model", seed=seeds.load)
        subject = stack.enter_context(Subject(runner, runners.fence, loaded))
        init = exported(runners.fence, [leaf.spec for leaf in loaded.init.leaves], runner.export_init)
        original = read_state(runner, runners.fence, owned_state(loaded))
        changed = randomise(original, parameter_names(loaded), seeds.state)
        write_state(runner, runners.fence, changed)
        state = {**original, **changed} if changed else original
        yield Reference(subject, runners, init, seeds, original, state, wall_s)


def check_answer(question: Question, tree: Tree, outputs: Sequence[Tensor], policy: TolerancePolicy) -> Checked:
    """Structure, shapes, dtypes and values of an answer; the first leaf that fails gives the verdict."""
    problem = layout_problem(question.answer.tree, tree)
    if problem:
        return _checked(question, [], *problem)
    results = [
        compare_leaf(path, got, expected, policy)
        for path, got, expected in zip(question.answer.tree.paths(), outputs, question.expected, strict=True)
    ]
    failed = [result for result in results if result.verdict]
    worst = next((item for item in failed if item.verdict is not Verdict.PRECISION_DOWNGRADE), None)
    worst = worst or (failed[0] if failed else None)
    errors = [result.error for result in results]
    return _checked(question, errors, worst.verdict, worst.message) if worst else _checked(question, errors, None, "")


def failed_family(question: Question, verdict: Verdict, message: str) -> Checked:
    """A family that fails for another reason than its values."""
    return _checked(question, [], verdict, message)


def secret_seed() -> int:
    """A seed that user code cannot foresee."""
    return secrets.randbelow(2**31)


def _checked(question: Question, errors: list[OutputError], verdict: Verdict | None, message: str) -> Checked:
    result = FamilyResult(
        workload="default",
        family=question.family,
        seed=question.seed,
        passed=verdict is None,
        outputs=errors,
        message=message,
    )
    return Checked(result, verdict)


def outputs_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether two answers are the same bit for bit, NaN counting as equal to NaN."""
    return all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if a.is_floating_point() else torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )
