"""Sending work to services: always after commit, and never twice within one lease."""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from services.broker import RUNS_QUEUE, app
from services.contracts import Message
from webapp.settings import ENV

ADVANCE_RUN = "runs.advance"


def queued_lease() -> datetime:
    """Until when a message may wait in its queue; after that it is void and sent again."""
    return timezone.now() + timedelta(seconds=ENV.queued_lease_s)


def working_lease() -> datetime:
    """Until when a worker must have reported again."""
    return timezone.now() + timedelta(seconds=ENV.working_lease_s)


def send_on_commit(
    task: str,
    message: Message,
    *,
    queue: str,
    expires: datetime | None,
    unsent: Callable[[], object] | None = None,
) -> None:
    """Send one message to a service once the transaction is in the database.

    The message expires with its row's lease, so that a row sent again after its lease is never worked on twice.
    A broker that is away loses nothing: the lease runs out and the row is sent again. `unsent` is called then.
    """
    arguments = [message.model_dump(mode="json")]

    def send() -> None:
        try:
            app.send_task(task, args=arguments, queue=queue, expires=expires)
        except Exception:
            if unsent:
                unsent()
            raise

    _on_commit(send)


def advance_on_commit(run_id: int) -> None:
    """Have the web's worker take the run's next step once the transaction is in the database."""
    _on_commit(lambda: app.send_task(ADVANCE_RUN, args=[run_id], queue=RUNS_QUEUE))


def _on_commit(send: Callable[[], object]) -> None:
    """Robust: a broker that is away is logged, and the page goes on. Django asks `send` for its __qualname__ then."""
    transaction.on_commit(send, robust=True)
