"""Pages of the library."""

from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from webapp.accounts.models import User
from webapp.library.models import Kernel
from webapp.runs.tests.rows import KERNEL_SOURCE, client_of, passed_run, screened_op


def test_a_winner_is_listed_with_its_evidence_and_provenance(alice: User) -> None:
    run = passed_run(alice)
    kernel = Kernel.objects.get()
    page = client_of(alice).get(reverse("kernel", args=[kernel.pk])).content.decode()
    for words in ("softmax_scale", "v1", "2.43×", "predicted vs eager", "32 registers, 0 spills", f"run #{run.pk}"):
        assert words in page
    assert "verified" not in page


def test_the_download_is_the_judged_bytes_under_a_name_with_the_version(alice: User) -> None:
    passed_run(alice)
    response = client_of(alice).get(reverse("kernel-source", args=[Kernel.objects.get().pk]))
    assert response.content == KERNEL_SOURCE.encode()
    assert response.headers["Content-Disposition"] == 'attachment; filename="softmax_scale_h200_v1.py"'


def test_a_name_in_any_script_makes_a_valid_header(alice: User) -> None:
    passed_run(alice)
    Kernel.objects.update(name="ソフト\r\nmax")
    response = client_of(alice).get(reverse("kernel-source", args=[Kernel.objects.get().pk]))
    assert response.status_code == 200
    assert "\n" not in response.headers["Content-Disposition"]


def test_the_list_filters_pages_and_asks_few_queries(
    alice: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(3):
        passed_run(alice, screened_op(alice))
    client = client_of(alice)
    with django_assert_max_num_queries(5):
        page = client.get(reverse("library")).content.decode()
    assert "3 kernels" in page
    assert "h200 (3)" in page
    assert "No kernel matches" in client.get(reverse("library") + "?target=a100").content.decode()
    assert "No kernel matches" in client.get(reverse("library") + "?q=relu%00").content.decode()


def test_a_stranger_sees_no_kernel(alice: User, charlie: User) -> None:
    passed_run(alice)
    assert "No kernel yet" in client_of(charlie).get(reverse("library")).content.decode()
