"""Fixtures of the web's tests."""

from collections.abc import Callable
from typing import Any

import pytest

from services import contracts
from services.broker import app
from webapp.accounts.models import Membership, Role, Team, User
from webapp.ops.models import Op
from webapp.ops.states import OpState

SOURCE = "class Model: ...\n"


class Sent(list[tuple[str, dict[str, Any]]]):
    """Messages that would have gone to the broker: (task, first argument)."""

    def of(self, task: str) -> list[dict[str, Any]]:
        """The arguments of one task's messages."""
        return [argument for name, argument in self if name == task]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Messages for services, kept at the broker's border instead of sent."""
    messages = Sent()

    def send_task(name: str, args: list[Any], **options: Any) -> None:
        messages.append((name, args[0]))

    monkeypatch.setattr(app, "send_task", send_task)
    return messages


@pytest.fixture
def team(db: None) -> Team:
    """Alice's and Bob's team."""
    return Team.objects.create(name="Kernels", slug="kernels")


@pytest.fixture
def alice(team: Team) -> User:
    """A member who writes."""
    return _member(team, "alice", Role.MEMBER)


@pytest.fixture
def bob(team: Team) -> User:
    """A viewer of the same team."""
    return _member(team, "bob", Role.VIEWER)


@pytest.fixture
def charlie(db: None) -> User:
    """A stranger with a team of his own."""
    return _member(Team.objects.create(name="Others", slug="others"), "charlie", Role.ADMIN)


def _member(team: Team, name: str, role: Role) -> User:
    user = User.objects.create_user(name, password=f"{name}-password")
    Membership.objects.create(team=team, user=user, role=role)
    return user


@pytest.fixture
def ready_op(team: Team, alice: User) -> Op:
    """A screened op."""
    report = contracts.ScreeningReport(
        op_id="1",
        status=contracts.ScreenStatus.ACCEPTED,
        facts=contracts.OpFacts(flops=10),
        isolation=contracts.IsolationLevel.FULL,
    )
    return Op.objects.create(
        team=team,
        owner=alice,
        name="softmax",
        source=SOURCE,
        source_sha256="0" * 64,
        target="h200",
        state=OpState.READY,
        report_json=report.model_dump(mode="json", exclude={"graph"}),
    )


@pytest.fixture
def evaluation() -> Callable[..., contracts.Evaluation]:
    """Makes the message of a verdict, with the evidence that each needs."""

    def make(candidate_id: int, verdict: str = "passed", speedup: float = 2.0, **fields: Any) -> contracts.Evaluation:
        passed = verdict == "passed"
        error = contracts.ErrorReport(kind="Error", message="it broke")
        family = contracts.FamilyResult(workload="default", family="as given", seed=1, passed=passed)
        estimate = contracts.Estimate(
            target="h200",
            reference_us=10 * speedup,
            candidate_us=10,
            floor_us=5,
            bound="memory",
            candidate_bytes=1,
            reference_bytes=2,
            candidate_launches=1,
            reference_launches=3,
            sentence="memory-bound",
        )
        values: dict[str, Any] = {
            "candidate_id": str(candidate_id),
            "verdict": verdict,
            "summary": f"It {verdict}.",
            "feedback": f"feedback: {verdict}",
            "backend": "host",
            "target": "h200",
            "families": [family],
            "kernels": [contracts.KernelReport(name="k", launches=1)] if passed else [],
            "error": None if passed or verdict.startswith("wrong") else error,
            "estimate": estimate if passed else None,
            "isolation": "full",
            "evaluator_version": "1",
        }
        return contracts.Evaluation(**(values | fields))

    return make
