"""How well user code can be shut in on this machine, found by trying."""

from dataclasses import dataclass
from pathlib import Path

from services.contracts import IsolationLevel


@dataclass(frozen=True)
class Isolation:
    """The level that was really tried, and in plain words why it is not more and what to do."""

    level: IsolationLevel
    note: str
    bwrap: Path | None = None
    """The bubblewrap binary, where the level is full."""
    landlock_abi: int = 0
