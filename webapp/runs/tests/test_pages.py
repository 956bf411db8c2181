"""Pages of runs and candidates."""

import re

from django.urls import reverse

from webapp.accounts.models import User
from webapp.runs.models import Candidate
from webapp.runs.tests.rows import client_of, passed_run, report_workers


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
        text = response.content.decode()
        assert "style=" not in text, name
        assert not re.search(r"\son\w+=", text), name
