"""Source files for download: exactly the bytes that were judged."""

import re

from django.http import HttpResponse
from django.utils.http import content_disposition_header


def python_file(source: str, name: str) -> HttpResponse:
    """A `.py` download of this source."""
    response = HttpResponse(source.encode(), content_type="text/x-python; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def file_stem(name: str) -> str:
    """A name as a part of a Python file's name."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:80] or "op"
