"""Answers of the sandbox about ops."""

from typing import Any

from services.broker import RECORD_SCREENING, app
from services.contracts import ScreeningReport
from webapp.ops import services
from webapp.received import received


@app.task(name=RECORD_SCREENING)
def record_screening(report: dict[str, Any]) -> None:
    """Keep a screening report."""
    services.record_screening(received(ScreeningReport, report))
