"""Live regions: htmx asks every two seconds, and gets 304 without rendering where nothing changed."""

from collections.abc import Callable
from functools import wraps

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django_htmx.http import HttpResponseClientRefresh

View = Callable[[HttpRequest, int], HttpResponse]


def live_region(version_of: Callable[[HttpRequest, int], int]) -> Callable[[View], View]:
    """Answer 304 where the caller's HX-PTag is the row's version, and mark every other answer with it.

    One whose session ended is sent to a fresh page, and so to the sign-in page, not into the region.
    """

    def decorate(view: View) -> View:
        @login_not_required
        @wraps(view)
        def wrapped(request: HttpRequest, pk: int) -> HttpResponse:
            if not request.user.is_authenticated:
                return HttpResponseClientRefresh()
            version = str(version_of(request, pk))
            unchanged = request.headers.get("HX-PTag") == version
            response = HttpResponse(status=304) if unchanged else view(request, pk)
            response["HX-PTag"] = version
            response["Cache-Control"] = "no-store"
            return response

        return wrapped

    return decorate
