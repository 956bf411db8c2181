"""The mutant gate: wrong answers that the checker must refuse on this op, before any candidate is trusted to it."""

from collections.abc import Sequence

from torch import Tensor

from services.contracts import Finding, MutantResult, TolerancePolicy
from services.sandbox.judge import mutants
from services.sandbox.judge.findings import finding
from services.sandbox.judge.layout import clone_layout
from services.sandbox.judge.mutants import Mutant
from services.sandbox.judge.reference import Question, Reference, check_answer
from services.sandbox.replies import Tree
from services.sandbox.runners import RunnerFault

_FINDINGS = {
    Mutant.ZEROS: "degenerate_zeros",
    Mutant.CONSTANT: "degenerate_constant",
    Mutant.IDENTITY: "degenerate_identity",
    Mutant.HALF_THE_WORK: "degenerate_half_the_work",
    Mutant.LOW_PRECISION: "degenerate_low_precision",
}


class MutantGate:
    """Shows every mutant to the checker, family by family, until each was caught once."""

    def __init__(self, policy: TolerancePolicy) -> None:
        self._policy = policy
        self._constant: list[Tensor] = []
        self._passing: dict[Mutant, str] = {}
        self._caught: dict[Mutant, str] = {}

    def show(self, question: Question, reference: Reference) -> None:
        """Try the mutants that no earlier family caught. The first question must be the inputs as given."""
        outputs = question.answer.outputs
        self._constant = self._constant or mutants.constant(outputs)
        for mutant in Mutant:
            if mutant not in self._caught:
                self._try(mutant, question, self._answers(mutant, question, reference))

    def results(self) -> list[MutantResult]:
        """One result for each mutant that this op's outputs allow."""
        return [
            MutantResult(mutant=mutant, caught=mutant in self._caught, detail=(self._passing | self._caught)[mutant])
            for mutant in Mutant
            if mutant in self._caught or mutant in self._passing
        ]

    def findings(self) -> list[Finding]:
        """What to say of the mutants that pass; a constant answer of zero is said once."""
        passing = [mutant for mutant in self._passing if mutant not in self._caught]
        if Mutant.ZEROS in passing:
            passing = [Mutant.ZEROS]
        return [finding(_FINDINGS[mutant], f"Wrong answer: {mutant}") for mutant in passing if mutant in _FINDINGS]

    def _try(self, mutant: Mutant, question: Question, answers: Sequence[Sequence[Tensor]]) -> None:
        """Caught only if every form of the mutant is refused by this family."""
        if not answers:
            return
        tree = question.answer.tree
        checked = [check_answer(question, tree, answer, self._policy) for answer in answers]
        if all(item.verdict for item in checked):
            self._caught[mutant] = f"inputs {question.family}: {checked[0].result.message}"
        else:
            self._passing.setdefault(mutant, f"passes on inputs {question.family}")

    def _answers(self, mutant: Mutant, question: Question, reference: Reference) -> list[Sequence[Tensor]]:
        outputs = question.answer.outputs
        match mutant:
            case Mutant.ZEROS:
                return [mutants.zeros(outputs)]
            case Mutant.IDENTITY:
                return list(mutants.identity(outputs, question.values))
            case Mutant.CONSTANT:
                return [self._constant]
            case Mutant.HALF_THE_WORK:
                return _half_the_work(question, reference)
            case Mutant.NAN:
                return _present(mutants.not_a_number(outputs))
            case Mutant.LOW_PRECISION:
                if self._policy is TolerancePolicy.RELAXED:
                    return []
                return _present(mutants.low_precision(outputs))


def _present(answer: list[Tensor] | None) -> list[Sequence[Tensor]]:
    return [] if answer is None else [answer]


def _half_the_work(question: Question, reference: Reference) -> list[Sequence[Tensor]]:
    values = [clone_layout(value) for value in question.values]
    if not mutants.halve_inputs(values):
        return []
    try:
        answer = reference.subject.ask(
            question.tree, values, seed=question.seed, wall_s=reference.wall_s, expected=question.answer.tree
        )
    except RunnerFault:
        return []
    return [answer.outputs] if _same_leaves(answer.tree, question.answer.tree) else []


def _same_leaves(got: Tree, expected: Tree) -> bool:
    return [leaf.spec.shape for leaf in got.leaves] == [leaf.spec.shape for leaf in expected.leaves]
