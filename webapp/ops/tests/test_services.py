"""Uploads and screening."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from services.broker import SCREEN_OP
from services.contracts import Finding, IsolationLevel, Progress, ScreeningReport, ScreenStatus, Severity
from webapp.accounts.models import Team, User
from webapp.conftest import Sent
from webapp.ops.models import Op
from webapp.ops.services import (
    BadSource,
    create_op,
    decode_source,
    record_screening,
    record_screening_progress,
    retry_screening,
    screen_again,
)
from webapp.ops.states import OpState
from webapp.settings import ENV


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = 1\n" * 2_000_000, "12.0 MB"),
        (b"a\x00b", "NUL bytes"),
        ("é".encode("latin-1"), "not UTF-8"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1f\x8bgz", "a gzip archive"),
        (b"\x89PNG\r\n", "a picture"),
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b'{"cells": []}', "a notebook"),
    ],
)
def test_it_refuses_what_is_not_source_and_says_what_it_is(data: bytes, message: str) -> None:
    with pytest.raises(BadSource, match=message):
        decode_source(data)


def test_it_reads_windows_files() -> None:
    assert decode_source("\ufeffa = 1\r\nb = 2\r".encode()) == "a = 1\nb = 2\n"


@pytest.fixture
def op(team: Team, alice: User, django_capture_on_commit_callbacks: Any) -> Op:
    with django_capture_on_commit_callbacks(execute=True):
        return create_op(team, alice, "softmax", "class Model: ...", target="H200")


def report(op: Op, status: ScreenStatus, *findings: Finding) -> ScreeningReport:
    """The sandbox's answer."""
    return ScreeningReport(op_id=str(op.pk), status=status, findings=list(findings), isolation=IsolationLevel.FULL)


def test_an_upload_is_sent_to_screening(op: Op, sent: Sent) -> None:
    (request,) = sent.of(SCREEN_OP)
    assert (request["op"]["source"], request["target"]) == ("class Model: ...", "h200")


@pytest.mark.parametrize(
    ("status", "state"), [(ScreenStatus.ACCEPTED, OpState.READY), (ScreenStatus.REFUSED, OpState.REFUSED)]
)
def test_a_report_settles_the_op_once(op: Op, status: ScreenStatus, state: OpState) -> None:
    record_screening_progress(op.pk, Progress(subject=f"op:{op.pk}", worker="w"))
    record_screening(report(op, status, Finding(code="c", severity=Severity.INFO, title="t")))
    record_screening(report(op, ScreenStatus.REFUSED))
    op.refresh_from_db()
    assert op.state == state
    assert op.report is not None
    assert [finding.title for finding in op.report.findings] == ["t"]


def test_a_lost_screening_is_sent_again_and_errors_after_the_last_attempt(
    op: Op, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    for _ in range(ENV.max_attempts):
        record_screening_progress(op.pk, Progress(subject=f"op:{op.pk}", worker="w"))
        op.refresh_from_db()
        assert op.state == OpState.SCREENING
        Op.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        with django_capture_on_commit_callbacks(execute=True):
            retry_screening(op, "The worker was gone.", counts=True)
    assert len(sent.of(SCREEN_OP)) == ENV.max_attempts
    op.refresh_from_db()
    assert op.state == OpState.ERRORED
    assert op.problem == "The worker was gone. Tried 3 times."
    assert screen_again(op)
    assert (op.state, op.attempt) == (OpState.QUEUED, 1)


def test_a_fault_of_the_sandbox_counts_though_no_worker_reported(
    op: Op, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    for _ in range(ENV.max_attempts + 1):
        with django_capture_on_commit_callbacks(execute=True):
            record_screening(report(op, ScreenStatus.INFRASTRUCTURE))
    assert len(sent.of(SCREEN_OP)) == ENV.max_attempts
    op.refresh_from_db()
    assert op.state == OpState.ERRORED


def test_it_does_not_screen_again_while_it_is_screened(op: Op) -> None:
    assert not screen_again(op)
