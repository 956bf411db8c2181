"""What workers say of themselves."""

from typing import Any

from services.broker import RECORD_WORKER, app
from services.contracts import WorkerReport
from webapp.fleet import services
from webapp.received import received


@app.task(name=RECORD_WORKER)
def record_worker(report: dict[str, Any]) -> None:
    """Keep one report."""
    services.record_worker(received(WorkerReport, report))
