"""Buttons: views that change something and go back to the page they stand on."""

from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods


def button(view: Callable[[HttpRequest, int], HttpResponse]) -> Callable[[HttpRequest, int], HttpResponse]:
    """POST only, at an address below its page's. A GET comes from signing in again: it goes back."""

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def wrapped(request: HttpRequest, pk: int) -> HttpResponse:
        if request.method == "POST":
            return view(request, pk)
        messages.info(request, "Nothing was changed: you were signed out. Choose it again.")
        return redirect(request.path.rstrip("/").rpartition("/")[0] + "/")

    return wrapped
