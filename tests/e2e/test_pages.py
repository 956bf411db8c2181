"""What only a browser shows: live parts, the editor, the theme, and reading and submitting without scripts."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from services.contracts import Progress, Stage
from tests.e2e.conftest import sign_in
from webapp.accounts.models import User
from webapp.ops.models import Op
from webapp.ops.services import record_screening
from webapp.runs.models import Candidate, Run
from webapp.runs.services import record_evaluation, record_progress
from webapp.runs.tests.rows import (
    KERNEL_SOURCE,
    OP_SOURCE,
    begun_run,
    failed_run,
    passed,
    passed_run,
    proposed,
    report_workers,
    screened_op,
    screening,
    stepped,
    uploaded_op,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def site(live_server: LiveServer, alice: User, page: Page) -> str:
    """The site's address; alice is signed in."""
    url = str(live_server.url)
    sign_in(page, url, "alice", "alice-password")
    return url


def test_a_run_is_followed_to_its_end_without_reloading(site: str, alice: User, page: Page) -> None:
    run = begun_run(alice)
    answers: list[int] = []
    page.on("response", lambda response: answers.append(response.status) if "/live/" in response.url else None)
    page.goto(f"{site}/runs/{run.pk}/")
    page.evaluate("window.marker = 'not reloaded'")
    expect(page.locator(".step-active")).to_contain_text("propose")
    with page.expect_response(lambda response: "/live/" in response.url and response.status == 304):
        pass

    candidate = proposed(run)
    record_progress(Progress(subject=f"candidate:{candidate.pk}", stage=Stage.CORRECTNESS, worker="w"))
    expect(page.locator(".step-active")).to_contain_text("correctness")
    record_evaluation(passed(candidate))
    stepped(run)
    expect(page.locator("#result")).to_contain_text("2.43×")
    expect(page.get_by_role("status").filter(has_text=f"Run {run.pk}: Passed")).to_be_attached()

    asked = len(answers)
    page.wait_for_timeout(4500)
    assert len(answers) == asked, "a run that is over is asked for no more"
    assert set(answers) == {200, 304}
    assert page.evaluate("window.marker") == "not reloaded"


def test_a_morph_keeps_what_is_open_and_focused(site: str, alice: User, page: Page) -> None:
    run = begun_run(alice)
    candidate = proposed(run)
    page.goto(f"{site}/runs/{run.pk}/")
    turn = page.locator("#turn-0")
    expect(turn).to_have_attribute("open", "")
    summary = turn.locator("summary")
    summary.click()
    summary.focus()
    expect(turn).not_to_have_attribute("open", "")
    record_progress(Progress(subject=f"candidate:{candidate.pk}", stage=Stage.COMPILE, worker="w"))
    expect(page.locator(".step-active")).to_contain_text("compile")
    expect(turn).not_to_have_attribute("open", "")
    expect(summary).to_be_focused()


def test_polling_survives_a_fault_of_the_server(site: str, alice: User, page: Page) -> None:
    run = begun_run(alice)
    page.goto(f"{site}/runs/{run.pk}/")
    page.route("**/live/", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    with page.expect_response(lambda response: response.status == 502):
        pass
    page.unroute("**/live/")
    candidate = proposed(run)
    expect(page.locator(f"#candidate-{candidate.pk}")).to_be_visible()
    expect(page.get_by_text("Bad gateway")).to_have_count(0)


def test_who_is_signed_out_elsewhere_is_asked_to_sign_in(site: str, alice: User, page: Page) -> None:
    run = begun_run(alice)
    page.goto(f"{site}/runs/{run.pk}/")
    page.context.clear_cookies()
    page.wait_for_url(f"{site}/login/?next=/runs/{run.pk}/")


def test_screening_is_followed_live(site: str, alice: User, page: Page) -> None:
    op = uploaded_op(alice)
    page.goto(f"{site}/ops/{op.pk}/")
    button = page.get_by_role("button", name="Optimise")
    expect(button).to_be_disabled()
    record_screening(screening(op))
    expect(button).to_be_enabled()
    expect(page.locator("#finding-1")).to_contain_text("The scale is a literal")
    page.locator("#finding-1").get_by_role("link", name="line 8").click()
    expect(page.locator("#L8")).to_be_in_viewport()
    button.click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))


def test_a_dropped_file_can_be_edited_before_it_goes_up(site: str, page: Page) -> None:
    page.goto(f"{site}/ops/new/")
    drop = """([text, name]) => {
        const data = new DataTransfer();
        data.items.add(new File([text], name));
        const zone = document.querySelector('[data-drop] .editor');
        for (const kind of ['dragover', 'drop'])
            zone.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
    }"""
    page.evaluate(drop, [OP_SOURCE, "dropped softmax.py"])
    expect(page.get_by_text("dropped softmax.py is in the editor.")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("dropped softmax")
    editor = page.locator(".editor .cm-content")
    expect(editor).to_contain_text("torch.softmax")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("# edited")
    page.get_by_role("button", name="Upload and screen").click()
    page.wait_for_url(re.compile(r"/ops/\d+/$"))
    assert Op.objects.get().source.rstrip().endswith("# edited")


def test_what_is_no_text_goes_up_and_is_named(site: str, page: Page, tmp_path: Path) -> None:
    archive = tmp_path / "ops.zip"
    archive.write_bytes(b"PK\x03\x04\x00\x00 no text \xff")
    page.goto(f"{site}/ops/new/")
    page.get_by_label("Name").fill("mine")
    page.locator("input[type=file]").set_input_files(archive)
    page.get_by_role("button", name="Upload and screen").click()
    expect(page.get_by_text("This is a zip archive, not Python source.")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("mine")


def test_copy_gives_the_judged_text(site: str, alice: User, page: Page) -> None:
    run = passed_run(alice)
    page.goto(f"{site}/runs/{run.pk}/")
    page.locator("#result").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == KERNEL_SOURCE


def test_the_theme_follows_the_system_until_one_is_chosen(site: str, page: Page) -> None:
    root = page.locator("html")
    page.emulate_media(color_scheme="dark")
    expect(root).to_have_attribute("data-bs-theme", "dark")
    page.locator("[data-theme-next]").click()
    expect(root).to_have_attribute("data-bs-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-bs-theme", "light")
    page.locator("[data-theme-next]").click()
    page.locator("[data-theme-next]").click()
    expect(root).to_have_attribute("data-theme-choice", "system")
    expect(root).to_have_attribute("data-bs-theme", "dark")


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways(width: int, site: str, alice: User, page: Page) -> None:
    op = screened_op(alice)
    run = passed_run(alice, op)
    broken = failed_run(alice, op)
    report_workers()
    candidate = Candidate.objects.get(turn__run=broken)
    page.set_viewport_size({"width": width, "height": 900})
    paths = ["/", "/ops/", "/ops/new/", f"/ops/{op.pk}/", "/runs/", f"/runs/{run.pk}/", f"/runs/{broken.pk}/"]
    for path in [*paths, f"/candidates/{candidate.pk}/", f"/candidates/{run.best_id}/", "/library/", "/fleet/"]:
        page.goto(f"{site}{path}")
        spare = page.evaluate("document.documentElement.clientWidth - document.documentElement.scrollWidth")
        assert spare >= 0, path


def test_everything_can_be_read_and_sent_without_scripts(
    live_server: LiveServer, alice: User, browser: Browser
) -> None:
    url = str(live_server.url)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    sign_in(page, url, "alice", "alice-password")
    page.goto(f"{url}/ops/new/")
    page.get_by_label("Name").fill("plain")
    page.get_by_label("Source").fill(OP_SOURCE)
    page.get_by_role("button", name="Upload and screen").click()
    op = Op.objects.get()
    record_screening(screening(op))
    page.get_by_role("link", name="Refresh").click()
    page.get_by_role("button", name="Optimise").click()
    run = Run.objects.get()
    page.wait_for_url(f"{url}/runs/{run.pk}/")
    run = stepped(run)
    record_evaluation(passed(proposed(run)))
    stepped(run)
    page.get_by_role("link", name="Refresh").click()
    with page.expect_download() as download:
        page.locator("#result").get_by_role("link", name="Download .py").click()
    assert Path(download.value.path()).read_text() == KERNEL_SOURCE
    page.get_by_role("link", name="Evidence", exact=True).click()
    expect(page.get_by_text("Kernels that ran")).to_be_visible()
    context.close()


def test_a_double_click_starts_one_run(site: str, alice: User, page: Page) -> None:
    op = screened_op(alice)
    page.goto(f"{site}/ops/{op.pk}/")
    page.get_by_role("button", name="Optimise").evaluate(
        "button => { button.click(); setTimeout(() => button.click(), 60); }"
    )
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    assert Run.objects.count() == 1
    page.go_back()
    page.get_by_role("button", name="Optimise").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    assert Run.objects.count() == 2


def test_a_text_sent_after_signing_out_is_not_lost(site: str, page: Page) -> None:
    page.goto(f"{site}/ops/new/")
    page.get_by_label("Name").fill("mine")
    page.locator(".editor .cm-content").click()
    page.keyboard.insert_text(OP_SOURCE)
    page.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Upload and screen").click()
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill("alice-password")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site}/ops/new/")
    expect(page.get_by_text("it is not uploaded yet")).to_be_visible()
    page.get_by_role("button", name="Upload and screen").click()
    page.wait_for_url(re.compile(r"/ops/\d+/$"))
    op = Op.objects.get()
    assert (op.name, op.source.strip()) == ("mine", OP_SOURCE.strip())
    page.goto(f"{site}/ops/new/")
    expect(page.get_by_label("Name")).to_have_value("")
