"""What the shell prints."""

import io

import pytest
from rich.console import Console

from services.contracts import Finding, ScreenStatus, Severity
from webapp.accounts.models import User
from webapp.ops.services import record_screening
from webapp.runs.local import DETAIL_CHARS, show_result, show_screening
from webapp.runs.models import Run
from webapp.runs.tests.rows import failed_run, screening, uploaded_op

pytestmark = pytest.mark.django_db


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def test_a_finding_is_told_with_what_was_raised_and_what_to_change(alice: User, console: Console) -> None:
    op = uploaded_op(alice, name="my[/op]")
    told = f"ValueError: [/red] no good\n  in forward, line 10: {'x' * DETAIL_CHARS}"
    finding = Finding(
        code="forward_failed", severity=Severity.BLOCKER, title="forward failed", detail=told, mend="Mend it.", line=10
    )
    record_screening(screening(op, status=ScreenStatus.REFUSED, findings=[finding]))
    op.refresh_from_db()
    show_screening(op, console)
    text = printed(console)
    assert "my[/op]: refused" in text
    assert "blocker forward failed (line 10)" in text
    assert "ValueError: [/red] no good" in text
    assert "in forward, line 10" in text
    assert "…" in text
    assert "Mend it." in text


def test_a_reason_may_look_like_markup(alice: User, console: Console) -> None:
    run = failed_run(alice)
    Run.objects.filter(pk=run.pk).update(reason="output[/0] differs")
    run.refresh_from_db()
    show_result(run, console)
    assert "output[/0] differs" in printed(console)
