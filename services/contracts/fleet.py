"""What a worker says of itself."""

from services.contracts.base import Message
from services.contracts.verdicts import Backend, IsolationLevel


class WorkerReport(Message):
    """Sent at start and every half minute to `fleet.record_worker`."""

    name: str
    queue: str
    backend: Backend | None = None
    isolation: IsolationLevel | None = None
    isolation_note: str = ""
    versions: dict[str, str] = {}
    model: str = ""
    """What an inference worker serves; empty where no model is configured."""
    note: str = ""
