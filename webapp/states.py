"""State machines in the database: rows move by compare-and-set, so that two workers never both win."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.db import models
from django.db.models import F


class State(models.TextChoices):
    """A closed set of states. Subclasses give transitions; label, badge colour and icon are for pages."""

    @property
    def colour(self) -> str:
        """Badge colour."""
        return _LOOKS[self.value][0]

    @property
    def icon(self) -> str:
        """Icon name."""
        return _LOOKS[self.value][1]


_LOOKS: dict[str, tuple[str, str]] = {
    "queued": ("secondary", "clock"),
    "screening": ("blue", "loader"),
    "ready": ("green", "check"),
    "refused": ("red", "x"),
    "errored": ("orange", "alert-triangle"),
    "running": ("blue", "loader"),
    "waiting": ("yellow", "hourglass"),
    "cancelling": ("yellow", "player-stop"),
    "cancelled": ("secondary", "ban"),
    "passed": ("green", "check"),
    "failed": ("red", "x"),
    "proposing": ("blue", "loader"),
    "evaluating": ("blue", "loader"),
    "done": ("green", "check"),
    "nothing": ("secondary", "minus"),
    "judged": ("green", "check"),
    "unreadable": ("red", "x"),
}


class StatefulModel(models.Model):
    """A row with a `state` that only `move` changes. Subclasses set TRANSITIONS: state -> states it may move to."""

    TRANSITIONS: ClassVar[dict[str, frozenset[str]]]
    state: Any

    class Meta:
        abstract = True

    @property
    def look(self) -> tuple[str, str]:
        """Badge colour and icon of the row's state."""
        return _LOOKS[self.state]

    def move(self, to: str, *, only_from: Iterable[str] | None = None, **fields: object) -> bool:
        """Move to a state by compare-and-set; False where another process was first or the state forbids it.

        `only_from` narrows the states it may come from; `fields` are written in the same statement.
        """
        sources = [source for source, targets in self.TRANSITIONS.items() if to in targets]
        if only_from is not None:
            wanted = set(only_from)
            sources = [source for source in sources if source in wanted]
        rows: Any = type(self)._default_manager
        moved = rows.filter(pk=self.pk, state__in=sources).update(state=to, **fields)
        if moved:
            self.refresh_from_db()
        return bool(moved == 1)


class VersionedModel(models.Model):
    """Counts its changes in `version`, so that a live page answers 304 where nothing changed."""

    version = models.PositiveIntegerField(default=1)

    class Meta:
        abstract = True

    @classmethod
    def touch(cls, pk: int) -> None:
        """Count one change."""
        cls._default_manager.filter(pk=pk).update(version=F("version") + 1)
