"""Signing in and out, icons, and the pages of errors."""

import re
from pathlib import Path

import pytest
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import AnonymousUser
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.urls import reverse

from webapp.accounts.models import User
from webapp.ops.states import OpState
from webapp.runs.states import CandidateState, RunState, TurnState
from webapp.runs.tests.rows import client_of
from webapp.runs.timeline import STEP_ICONS

WEBAPP = Path(__file__).parents[2]


def test_sign_in_and_out(alice: User) -> None:
    client = Client()
    page = client.get("/runs/")
    assert page.headers["Location"] == "/login/?next=/runs/"
    wrong = client.post("/login/", {"username": "alice", "password": "no"})
    assert "Please enter a correct" in wrong.content.decode()
    assert 'value="alice"' in wrong.content.decode()
    right = client.post("/login/", {"username": "alice", "password": "alice-password", "next": "/runs/"})
    assert right.headers["Location"] == "/runs/"
    assert "alice" in client.get("/").content.decode()
    assert client.post("/logout/").headers["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_sign_in_goes_nowhere_else(alice: User) -> None:
    data = {"username": "alice", "password": "alice-password", "next": "https://elsewhere.example/"}
    assert Client().post("/login/", data).headers["Location"] == "/"


@pytest.mark.parametrize("demo", [True, False])
def test_the_demo_login_is_named_in_the_demo_only(demo: bool, rf: RequestFactory) -> None:
    request = rf.get("/login/")
    request.user = AnonymousUser()
    page = render_to_string("accounts/login.html", {"demo": demo, "form": AuthenticationForm()}, request)
    assert ("This is a demo" in page) is demo


def test_a_form_without_its_token_changes_nothing_and_says_so(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    response = client.post(reverse("op-new"), {"name": "x"})
    assert response.status_code == 403
    assert "nothing was changed" in response.content.decode()


def test_a_fault_of_ours_says_so(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("webapp.views.ops_for", broken)
    client = client_of(alice)
    client.raise_request_exception = False
    response = client.get("/")
    assert response.status_code == 500
    assert "our fault" in response.content.decode()


def test_the_sprite_has_the_icons_that_pages_use_and_no_others() -> None:
    used = {state.icon for states in (OpState, RunState, TurnState, CandidateState) for state in states}
    texts = [path.read_text() for path in [*WEBAPP.glob("**/templates/**/*.html"), *WEBAPP.glob("*/**/*.py")]]
    shipped = set(re.findall(r'<symbol id="([\w-]+)"', (WEBAPP / "static/vendor/icons.svg").read_text()))
    named = {icon for text in texts for icon in re.findall(r'{% icon "([\w-]+)"', text)}
    assert (used | named | set(STEP_ICONS.values())) - shipped == set()
    assert {icon for icon in shipped - used if not any(f'"{icon}"' in text for text in texts)} == set()


def test_our_own_javascript_stays_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (WEBAPP / "static/js").glob("*.js"))
    assert lines <= 300
