"""The page of workers."""

from datetime import timedelta

from django.urls import reverse
from django.utils import timezone

from webapp.accounts.models import User
from webapp.fleet.models import Worker
from webapp.runs.tests.rows import client_of, report_workers


def test_workers_say_what_they_are(alice: User) -> None:
    report_workers()
    page = client_of(alice).get(reverse("fleet")).content.decode()
    for words in ("sandbox@here", "sandbox.cpu", "isolation full", "tiny-coder", "triton 3.7.1", "alive"):
        assert words in page
    assert "No worker serves" not in page


def test_a_queue_without_a_living_worker_is_named(alice: User) -> None:
    report_workers()
    Worker.objects.filter(queue="sandbox.cpu").update(last_seen=timezone.now() - timedelta(hours=1))
    page = client_of(alice).get(reverse("fleet")).content.decode()
    assert "No worker serves" in page
    assert "gone" in page
