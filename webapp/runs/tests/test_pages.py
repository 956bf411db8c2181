"""Pages of runs and candidates."""

import re

import pytest
from django.http import HttpResponse, HttpResponseBase
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from services.contracts import (
    Evaluation,
    FamilyResult,
    OutputError,
    Progress,
    ProposeOutcome,
    ProposeResult,
    Stage,
    Verdict,
)
from webapp.accounts.models import User
from webapp.runs.models import Candidate, Run
from webapp.runs.services import record_evaluation, record_progress, record_proposals
from webapp.runs.tests.rows import (
    KERNEL_SOURCE,
    bare,
    begun_run,
    client_of,
    failed,
    failed_run,
    passed,
    passed_run,
    propose,
    proposed,
    report_workers,
    screened_op,
    stepped,
)


def text_of(response: HttpResponseBase) -> str:
    assert isinstance(response, HttpResponse)
    return response.content.decode()


def live(client: Client, run: Run, tag: int | None = None) -> HttpResponse:
    headers = {"HX-Request": "true"} | ({"HX-PTag": str(tag)} if tag is not None else {})
    response = client.get(reverse("run-live", args=[run.pk]), headers=headers)
    assert isinstance(response, HttpResponse)
    return response


def test_every_page_renders_without_inline_code(alice: User) -> None:
    run = passed_run(alice)
    report_workers()
    candidate = Candidate.objects.get()
    pages = [
        ("home", []),
        ("ops", []),
        ("op", [run.op_id]),
        ("op-new", []),
        ("runs", []),
        ("run", [run.pk]),
        ("candidate", [candidate.pk]),
        ("library", []),
        ("kernel", [candidate.kernels.get().pk]),
        ("fleet", []),
    ]
    for name, args in pages:
        response = client_of(alice).get(reverse(name, args=args))
        assert response.status_code == 200, name
        assert "style=" not in text_of(response), name
        assert not re.search(r"\son\w+=", response.content.decode()), name
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]


PAGES = ["run", "run-live", "candidate", "candidate-source", "kernel", "kernel-source", "op", "op-live", "op-source"]


@pytest.mark.parametrize("name", PAGES)
def test_a_stranger_gets_404_and_nobody_gets_the_sign_in_page(name: str, alice: User, bob: User, charlie: User) -> None:
    run = passed_run(alice)
    candidate = Candidate.objects.get()
    kind = name.split("-")[0]
    pk = {"run": run.pk, "candidate": candidate.pk, "kernel": candidate.kernels.get().pk, "op": run.op_id}[kind]
    address = reverse(name, args=[pk])
    assert client_of(alice).get(address).status_code == 200
    assert client_of(bob).get(address).status_code == 200
    assert client_of(charlie).get(address).status_code == 404
    anonymous = Client().get(address)
    if name.endswith("-live"):
        assert anonymous.headers["HX-Refresh"] == "true"
        assert "softmax" not in anonymous.content.decode()
    else:
        assert anonymous.status_code == 302
        assert anonymous.headers["Location"].startswith("/login/?next=")


@pytest.mark.parametrize("name", ["run-cancel", "run-retry"])
def test_only_who_may_write_cancels_and_retries(name: str, alice: User, bob: User, charlie: User) -> None:
    run = begun_run(alice) if name == "run-cancel" else failed_run(alice)
    address = reverse(name, args=[run.pk])
    for user in (bob, charlie):
        assert client_of(user).post(address).status_code == 404
    assert client_of(alice).get(address).headers["Location"] == reverse("run", args=[run.pk])
    run.refresh_from_db()
    assert Run.objects.count() == 1
    assert run.state != "cancelling"


def test_an_unchanged_run_is_304_without_rendering(
    alice: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    run = begun_run(alice)
    client = client_of(alice)
    first = live(client, run)
    assert first.status_code == 200
    assert first.headers["HX-PTag"] == str(run.version)
    with django_assert_max_num_queries(3):
        again = live(client, run, run.version)
    assert (again.status_code, again.content) == (304, b"")
    proposed(run)
    changed = live(client, run, run.version)
    assert changed.status_code == 200
    assert "correctness" in text_of(changed)


def test_a_run_that_is_over_asks_no_more(alice: User) -> None:
    run = begun_run(alice)
    assert "hx-trigger" in text_of(live(client_of(alice), run))
    record_evaluation(passed(proposed(run)))
    run = stepped(run)
    fragment = text_of(live(client_of(alice), run))
    assert "hx-trigger" not in fragment
    assert "hx-get" not in fragment
    assert 'id="result"' in fragment
    assert "<html" not in fragment


def test_the_step_in_hand_is_shown(alice: User) -> None:
    run = begun_run(alice)
    fragment = text_of(live(client_of(alice), run))
    assert re.findall(r'<li class="step-(\w+)"', fragment) == ["active", *["pending"] * 5]
    candidate = proposed(run)
    record_progress(Progress(subject=f"candidate:{candidate.pk}", stage=Stage.LOAD, worker="w"))
    fragment = text_of(live(client_of(alice), run))
    assert re.findall(r'<li class="step-(\w+)"', fragment) == [
        "passed",
        "passed",
        "active",
        "pending",
        "pending",
        "pending",
    ]


def test_a_queue_without_a_worker_is_named(alice: User) -> None:
    run = begun_run(alice)
    client = client_of(alice)
    assert 'No worker serves <span class="mono">inference' in text_of(live(client, run))
    proposed(run)
    assert 'No worker serves <span class="mono">sandbox.cpu' in text_of(live(client, run))
    report_workers()
    assert "No worker serves" not in text_of(live(client, run))


def test_a_prediction_is_marked_as_one(alice: User) -> None:
    run = passed_run(alice)
    page = text_of(client_of(alice).get(reverse("run", args=[run.pk])))
    assert "2.43×" in page
    assert "tag-predicted" in page
    assert "tag-measured" not in page


def test_a_failed_kernel_is_not_our_fault_and_the_failing_turn_is_open(alice: User) -> None:
    run = failed_run(alice)
    page = text_of(client_of(alice).get(reverse("run", args=[run.pk])))
    assert "No candidate passed" in page
    assert "kernel's fault" not in page
    assert re.search(r'<details class="turn" id="turn-0" open>', page)


def test_an_errored_run_is_not_the_kernels_fault(alice: User) -> None:
    run = begun_run(alice)
    Run.objects.filter(pk=run.pk).update(state="errored", reason="The worker was gone.")
    page = text_of(client_of(alice).get(reverse("run", args=[run.pk])))
    assert "Not the kernel's fault" in page
    assert "No candidate passed" not in page


def test_no_seed_says_why(alice: User) -> None:
    run = begun_run(alice)
    record_proposals(
        ProposeResult(
            turn_id=str(run.turns.get().pk), outcome=ProposeOutcome.NOTHING, reason="no seed: aten.fft is not known"
        )
    )
    page = text_of(live(client_of(alice), stepped(run)))
    assert "no seed: aten.fft is not known" in page


def test_cancel_then_retry(alice: User) -> None:
    run = begun_run(alice)
    client = client_of(alice)
    assert client.post(reverse("run-cancel", args=[run.pk])).status_code == 302
    run.refresh_from_db()
    assert run.state == "cancelling"
    assert "Stopping after this step" in text_of(live(client, run))
    run = stepped(run)
    assert run.state == "cancelled"
    again = client.post(reverse("run-retry", args=[run.pk]))
    assert again.headers["Location"] == reverse("run", args=[run.pk + 1])
    assert Run.objects.get(pk=run.pk + 1).retried_from == run


def test_the_error_and_its_line_point_at_each_other(alice: User) -> None:
    failed_run(alice)
    page = client_of(alice).get(reverse("candidate", args=[Candidate.objects.get().pk])).content.decode()
    assert '<a class="mono" href="#L12">line 12' in page
    assert '<tr id="L12" class="is-error">' in page
    assert '<a href="#error">CompilationError: Expected dtype' in page
    assert "1.25×" not in page


def test_the_evidence_has_every_figure(alice: User) -> None:
    passed_run(alice)
    page = client_of(alice).get(reverse("candidate", args=[Candidate.objects.get().pk])).content.decode()
    for figure in ("5.00e-08", "4.00e-08", "1.25×", "1.00e-04", ">41<", "32", "200 kB", "isolation full", "2.43 s"):
        assert figure in page, figure


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.INFRASTRUCTURE])
def test_every_verdict_has_its_pages(verdict: Verdict, alice: User) -> None:
    run = begun_run(alice)
    candidate = proposed(run)
    record_evaluation(bare(candidate, verdict))
    run = stepped(run)
    assert candidate.evaluations.get().verdict == verdict
    for address in (reverse("run", args=[run.pk]), reverse("candidate", args=[candidate.pk])):
        page = client_of(alice).get(address).content.decode()
        assert verdict.label in page
    for kernel in candidate.kernels.all():
        assert client_of(alice).get(reverse("kernel", args=[kernel.pk])).status_code == 200


def test_a_candidate_waits_in_plain_words(alice: User) -> None:
    candidate = proposed(begun_run(alice))
    page = client_of(alice).get(reverse("candidate", args=[candidate.pk])).content.decode()
    assert "Not judged yet" in page


def test_source_is_never_markup(alice: User) -> None:
    run = begun_run(alice)
    nasty = KERNEL_SOURCE + "# </td><script>alert(1)</script>\n"
    record_evaluation(failed(propose(run.turns.get(), nasty, title="<b>title</b>")[0]))
    for address in (reverse("run", args=[run.pk]), reverse("candidate", args=[Candidate.objects.get().pk])):
        page = client_of(alice).get(address).content.decode()
        assert "<script>alert" not in page
        assert "<b>title" not in page


def test_the_download_is_what_was_judged(alice: User) -> None:
    run = begun_run(alice)
    source = KERNEL_SOURCE + "# naïve ✓\n"
    record_evaluation(passed(propose(run.turns.get(), source)[0]))
    candidate = Candidate.objects.get()
    response = client_of(alice).get(reverse("candidate-source", args=[candidate.pk]))
    assert response.content == source.encode()
    assert response.headers["Content-Disposition"] == (
        f'attachment; filename="softmax_scale_h200_run{run.pk}_turn0.py"'
    )


def test_the_list_filters_and_pages(alice: User, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    op = screened_op(alice)
    for _ in range(30):
        failed_run(alice, op)
    client = client_of(alice)
    with django_assert_max_num_queries(7):
        page = client.get(reverse("runs")).content.decode()
    assert "Page 1 of 2" in page
    assert "30 runs" in page
    assert "Page 2 of 2" in client.get(reverse("runs") + "?page=99").content.decode()
    assert "No run matches" in client.get(reverse("runs") + "?state=passed").content.decode()
    assert "No run matches" in client.get(reverse("runs") + "?q=layernorm").content.decode()
    assert client.get(reverse("runs") + "?q=%00&state=%00&page=x").status_code == 200


def test_a_run_page_of_many_turns_asks_few_queries(
    alice: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    report_workers()
    run = begun_run(alice)
    Run.objects.filter(pk=run.pk).update(max_turns=12)
    for number in range(10):
        turn = run.turns.order_by("-index")[0]
        record_evaluation(passed(propose(turn, KERNEL_SOURCE + f"# {number}\n")[0], 1 + number / 10))
        run = stepped(run)
    assert run.turns.count() == 11
    client = client_of(alice)
    with django_assert_max_num_queries(10):
        client.get(reverse("run", args=[run.pk]))


@pytest.mark.parametrize(
    "address", ["/runs/0/", "/runs/99999999999999999999/", "/candidates/5/", "/library/7/", "/ops/8/", "/nothing/"]
)
def test_what_is_not_there_is_404_in_plain_words(address: str, alice: User) -> None:
    response = client_of(alice).get(address)
    assert response.status_code == 404
    assert "There is nothing here for you" in response.content.decode()


def test_wrong_values_say_where(alice: User) -> None:
    candidate = proposed(begun_run(alice))
    spec = passed(candidate).families[0].outputs[0].spec
    wrong = OutputError(
        path="[1]",
        spec=spec,
        candidate_error=0.067,
        reference_error=1e-7,
        tolerance=1e-4,
        mismatched=48399,
        worst_index=[50, 423],
        worst_got=0.5,
        worst_expected=0.25,
    )
    family = FamilyResult(workload="default", family="spiked", seed=9, passed=False, outputs=[wrong])
    fields = bare(candidate, Verdict.WRONG_VALUES).model_dump() | {"families": [family], "error": None}
    record_evaluation(Evaluation.model_validate(fields))
    page = client_of(alice).get(reverse("candidate", args=[candidate.pk])).content.decode()
    for words in ("48399 of 49984 elements differ", "[50, 423]", "got 0.5, expected 0.25", "6.70e-02", "row-failed"):
        assert words in page, words


def test_a_kernel_that_is_no_faster_is_not_praised(alice: User) -> None:
    run = begun_run(alice)
    record_evaluation(passed(proposed(run), speedup=0.97))
    stepped(run)
    assert "not faster than eager" in text_of(client_of(alice).get(reverse("run", args=[run.pk])))
    assert "not faster than eager" not in text_of(client_of(alice).get(reverse("run", args=[passed_run(alice).pk])))


def test_a_failed_run_says_that_a_model_could_go_on(alice: User) -> None:
    page = text_of(client_of(alice).get(reverse("run", args=[failed_run(alice).pk])))
    assert "Only the compiler seed was asked" in page
