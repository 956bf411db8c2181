"""Pages of ops: upload, screening report, start of a run."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from services.broker import app
from services.contracts import Finding, MutantResult, ScreenStatus, Severity
from webapp.accounts.models import User
from webapp.ops.models import Op
from webapp.ops.selectors import samples
from webapp.ops.tasks import record_screening
from webapp.runs.models import Run
from webapp.runs.tests.rows import OP_SOURCE, client_of, passed_run, screened_op, screening, uploaded_op
from webapp.settings import ENV


def upload(client: Client, **fields: Any) -> HttpResponse:
    data = {"name": "softmax", "source": "", "policy": "standard", "target": "h200"} | fields
    response = client.post(reverse("op-new"), data)
    assert isinstance(response, HttpResponse)
    return response


def test_pasted_source_becomes_an_op(alice: User) -> None:
    response = upload(client_of(alice), source=OP_SOURCE.replace("\n", "\r\n"), policy="strict", target="a100")
    op = Op.objects.get()
    assert response.headers["Location"] == reverse("op", args=[op.pk])
    assert (op.source, op.policy, op.target, op.owner) == (OP_SOURCE, "strict", "a100", alice)


def test_a_file_becomes_an_op_named_after_it(alice: User) -> None:
    upload(client_of(alice), name="", file=SimpleUploadedFile("fast softmax.py", OP_SOURCE.encode()))
    op = Op.objects.get()
    assert (op.name, op.source) == ("fast softmax", OP_SOURCE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"x = 1\n" * 200_000, "1.2 MB"),
        (b"x = 1\x00\n", "NUL bytes"),
        (b"# caf\xe9\n", "not UTF-8"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1f\x8b\x08rest", "a gzip archive"),
        (b"\x89PNG\r\n\x1a\nrest", "a picture"),
        (b'{"cells": [], "nbformat": 4}', "a notebook"),
    ],
)
def test_a_bad_file_is_named_beside_its_field(data: bytes, words: str, alice: User) -> None:
    response = upload(client_of(alice), name="kept name", policy="relaxed", file=SimpleUploadedFile("op.py", data))
    page = response.content.decode()
    assert response.status_code == 422
    assert words in page.split('id="id_file_error"')[1]
    assert 'value="kept name"' in page
    assert 'value="relaxed" checked' in page
    assert not Op.objects.exists()


@pytest.mark.parametrize(("source", "words"), [("", "empty"), ("x\x00y", "NUL bytes"), ("x = 1\n" * 200_000, "1.2 MB")])
def test_bad_text_is_named_beside_its_field(source: str, words: str, alice: User) -> None:
    response = upload(client_of(alice), source=source)
    assert response.status_code == 422
    assert words in response.content.decode().split('id="id_source_error"')[1]


def test_both_given_keeps_the_text(alice: User) -> None:
    response = upload(client_of(alice), source=OP_SOURCE, file=SimpleUploadedFile("op.py", b"x = 1\n"))
    page = response.content.decode()
    assert response.status_code == 422
    assert "Both a file and pasted text" in page
    assert "return torch.softmax(x * 0.125, dim=-1)" in page


def test_a_good_file_stays_when_another_field_is_wrong(alice: User) -> None:
    file = SimpleUploadedFile("op.py", OP_SOURCE.encode())
    response = upload(client_of(alice), target="abacus", file=file)
    page = response.content.decode()
    assert response.status_code == 422
    assert "return torch.softmax(x * 0.125, dim=-1)" in page
    assert "abacus" in page.split('id="id_target_error"')[1]


def test_a_request_beyond_all_limits_is_413_in_plain_words(alice: User) -> None:
    response = upload(client_of(alice), source="x" * 13_000_000)
    assert response.status_code == 413
    assert "too large" in response.content.decode()


def test_samples_and_other_ops_fill_the_form(alice: User, charlie: User) -> None:
    client = client_of(alice)
    sample = samples()[0]
    assert f'value="{sample.slug}"' in client.get(f"/ops/new/?sample={sample.slug}").content.decode()
    assert client.get("/ops/new/?sample=nothing").status_code == 404
    op = screened_op(alice)
    assert "torch.softmax" in client.get(f"/ops/new/?from={op.pk}").content.decode()
    assert client_of(charlie).get(f"/ops/new/?from={op.pk}").status_code == 404
    assert client.get("/ops/new/?from=" + "9" * 5000).status_code == 404
    assert client.get("/ops/new/?from=x").status_code == 200


def test_an_op_without_a_verdict_is_live_and_cannot_run(alice: User) -> None:
    op = uploaded_op(alice)
    page = client_of(alice).get(reverse("op", args=[op.pk])).content.decode()
    assert 'hx-trigger="every 2s"' in page
    assert "<fieldset disabled>" in page
    assert "Screening is not done yet" in page
    assert "No sandbox worker is alive" in page


def test_findings_say_what_where_and_what_to_change(alice: User) -> None:
    op = screened_op(
        alice,
        status=ScreenStatus.REFUSED,
        findings=[
            Finding(
                code="always_zero",
                severity=Severity.BLOCKER,
                title="A wrong answer passes: zeros",
                detail="The output does not depend on x.",
                mend="Return something that depends on x.",
                line=8,
            )
        ],
        mutants=[MutantResult(mutant="zeros", caught=False, detail="error 0")],
    )
    page = client_of(alice).get(reverse("op", args=[op.pk])).content.decode()
    for words in ("A wrong answer passes: zeros", "Return something that depends on x.", "let through", 'href="#L8"'):
        assert words in page
    assert '<tr id="L8" class="is-error">' in page
    assert 'href="#finding-1"' in page
    assert "hx-trigger" not in page
    assert "Screening refused this op" in page
    response = client_of(alice).post(
        reverse("op-optimise", args=[op.pk]), {"strategy": "seed", "max_turns": 1, "target": "h200"}
    )
    assert response.status_code == 422
    assert not Run.objects.exists()


def test_optimise_starts_a_run(alice: User) -> None:
    op = screened_op(alice)
    response = client_of(alice).post(
        reverse("op-optimise", args=[op.pk]), {"strategy": "seed", "max_turns": 3, "target": "a100"}
    )
    run = Run.objects.get()
    assert response.headers["Location"] == reverse("run", args=[run.pk])
    assert (run.strategy, run.max_turns, run.target, run.owner) == ("seed", 3, "a100", alice)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_turns": 0}, "greater than or equal to 1"),
        ({"max_turns": "many"}, "whole number"),
        ({"target": "abacus"}, "abacus"),
        ({"strategy": "model"}, "No model is configured"),
        ({"strategy": ""}, "required"),
    ],
)
def test_a_run_that_cannot_start_says_why(fields: dict[str, Any], words: str, alice: User) -> None:
    op = screened_op(alice)
    data = {"strategy": "seed", "max_turns": 3, "target": "a100"} | fields
    response = client_of(alice).post(reverse("op-optimise", args=[op.pk]), data)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not Run.objects.exists()


@pytest.mark.parametrize("name", ["op-optimise", "op-screen"])
def test_who_may_not_write_changes_nothing(name: str, alice: User, bob: User, charlie: User) -> None:
    op = screened_op(alice)
    for user in (bob, charlie):
        assert client_of(user).post(reverse(name, args=[op.pk])).status_code == 404
    assert "Screen again" not in client_of(bob).get(reverse("op", args=[op.pk])).content.decode()
    op.refresh_from_db()
    assert op.state == "ready"


def test_screen_again(alice: User) -> None:
    op = screened_op(alice)
    client_of(alice).post(reverse("op-screen", args=[op.pk]))
    op.refresh_from_db()
    assert op.state == "queued"


def test_an_errored_screening_is_our_fault(alice: User) -> None:
    op = uploaded_op(alice)
    Op.objects.filter(pk=op.pk).update(state="errored", problem="The worker was gone. Tried 3 times.")
    page = client_of(alice).get(reverse("op", args=[op.pk])).content.decode()
    assert "Our fault" in page
    assert "Tried 3 times." in page


def test_the_list_filters_and_pages(alice: User, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(30):
        uploaded_op(alice, f"op {number}")
    client = client_of(alice)
    with django_assert_max_num_queries(5):
        page = client.get(reverse("ops")).content.decode()
    assert "Page 1 of 2" in page
    assert "1 op<" in client.get(reverse("ops") + "?q=OP+17").content.decode()
    assert "No op matches" in client.get(reverse("ops") + "?state=ready").content.decode()
    assert client.get(reverse("ops") + "?q=%00&state=nothing&page=-3").status_code == 200


def test_busy_pages_ask_few_queries(alice: User, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    op = screened_op(alice)
    for _ in range(12):
        passed_run(alice, op)
    client = client_of(alice)
    with django_assert_max_num_queries(9):
        client.get(reverse("home"))
    with django_assert_max_num_queries(11):
        client.get(reverse("op", args=[op.pk]))


def test_a_new_installation_offers_a_sample(alice: User) -> None:
    for name in ("home", "ops"):
        page = client_of(alice).get(reverse(name)).content.decode()
        assert f"?sample={samples()[0].slug}" in page
    assert "Open the ops" in client_of(alice).get(reverse("runs")).content.decode()


def test_the_download_is_the_source(alice: User) -> None:
    op = screened_op(alice)
    response = client_of(alice).get(reverse("op-source", args=[op.pk]))
    assert response.content.decode() == OP_SOURCE
    assert 'filename="softmax_scale.py"' in response.headers["Content-Disposition"]


def test_a_message_of_user_code_may_hold_anything(alice: User) -> None:
    op = uploaded_op(alice)
    told = "ValueError: \ud800 \0 <script>alert(1)</script>"
    finding = Finding(code="forward_failed", severity=Severity.BLOCKER, title="forward failed", detail=told)
    record_screening(screening(op, status=ScreenStatus.REFUSED, findings=[finding]).model_dump(mode="json"))
    response = client_of(alice).get(reverse("op", args=[op.pk]))
    assert "ValueError: \ufffd \ufffd &lt;script&gt;" in response.content.decode()


def test_an_upload_is_kept_while_the_broker_is_away(
    transactional_db: None, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(app, "send_task", refuse)
    response = upload(client_of(alice), source=OP_SOURCE)
    op = Op.objects.get()
    assert response.headers["Location"] == reverse("op", args=[op.pk])
    soon = timezone.now() + timedelta(seconds=ENV.working_lease_s)
    assert op.lease_until is not None
    assert op.lease_until <= soon, "it is sent again when this has passed"


def test_what_refuses_an_op_stands_before_what_is_only_said(alice: User) -> None:
    op = uploaded_op(alice)
    findings = [
        Finding(code="launch_bound", severity=Severity.INFO, title="Small op", mend="Nothing to change."),
        Finding(code="nan_output", severity=Severity.BLOCKER, title="It gives NaN", mend="Give other inputs."),
    ]
    record_screening(screening(op, status=ScreenStatus.REFUSED, findings=findings).model_dump(mode="json"))
    page = client_of(alice).get(reverse("op", args=[op.pk])).content.decode()
    assert page.index("It gives NaN") < page.index("Small op")
    assert "<strong>Change:</strong> Give other inputs." in page
    assert "<strong>Change:</strong> Nothing to change." not in page
