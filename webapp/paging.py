"""Pages of a list."""

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

PAGE_SIZE = 25


def page_of(request: HttpRequest, rows: "QuerySet[Any]", size: int = PAGE_SIZE) -> "Page[Any]":
    """The page that `?page=` asks for; the nearest one where there is no such page."""
    return Paginator(rows, size).get_page(request.GET.get("page"))


def search_term(request: HttpRequest) -> str:
    """What `?q=` asks for. NUL bytes, which PostgreSQL refuses, are dropped."""
    return request.GET.get("q", "").replace("\x00", "").strip()[:100]
