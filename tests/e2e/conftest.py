"""A real browser, and pages that fail their test on any script error."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from services.broker import app
from webapp.accounts.models import Membership, Role, Team, User

# Playwright's synchronous API keeps an event loop in the test's thread, where Django would refuse queries.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh profile."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(10_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """One tab; a script error or a breach of the content security policy fails the test."""
    page = context.new_page()
    problems = watch(page)
    yield page
    assert problems == []


def watch(page: Page) -> list[str]:
    """What goes wrong in the page's scripts from now on."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if "Content Security Policy" in message.text else None,
    )
    return problems


def sign_in(page: Page, url: str, username: str, password: str) -> None:
    """Sign in by the form."""
    page.goto(f"{url}/login/")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{url}/")


@pytest.fixture
def alice(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> User:
    """Someone who writes; no message leaves for a broker."""
    monkeypatch.setattr(app, "send_task", lambda *_, **__: None)
    user = User.objects.create_user("alice", password="alice-password")
    team = Team.objects.create(name="Kernels", slug="kernels")
    Membership.objects.create(team=team, user=user, role=Role.MEMBER)
    return user
