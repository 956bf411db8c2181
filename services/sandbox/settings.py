"""Settings of a sandbox worker: the only code here that reads the environment."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SandboxSettings(BaseSettings):
    """Environment variables start with SANDBOX_, e.g. SANDBOX_MEMORY_BYTES."""

    model_config = SettingsConfigDict(env_prefix="SANDBOX_", extra="ignore", frozen=True)

    allow_unsafe: bool = False
    """Run user code with no isolation at all where neither bubblewrap nor Landlock works. Never on a shared machine."""
    isolation: Literal["", "reduced", "none"] = ""
    """Ask for a lower level than the machine can give: "reduced" or "none". Empty takes the best."""
    bwrap: Path | None = None
    """A bubblewrap binary to use; found by itself where unset."""
    memory_bytes: int = Field(6 << 30, ge=1 << 30)
    """Address space of one runner process."""
    tmp_bytes: int = Field(256 << 20, ge=16 << 20)
    """Size of a runner's /tmp, and of its /dev/shm."""
    cpu_s: int = Field(600, ge=1)
    """CPU seconds of one runner."""
    processes: int = Field(64, ge=1)
    """Processes and threads of one slot's user."""
    file_bytes: int = Field(64 << 20, ge=1 << 20)
    """Largest file that a runner may write."""
    open_files: int = Field(256, ge=64)
    """File descriptors of one runner."""
    output_bytes: int = Field(16 << 10, ge=0)
    """How much of a runner's stdout and stderr is kept; the rest is read and dropped."""
    message_bytes: int = Field(32 << 20, ge=1 << 20)
    """Largest answer of a runner."""
    start_s: float = Field(120.0, gt=0)
    """Deadline for a zygote to import torch and triton."""
    call_s: float = Field(120.0, gt=0)
    """Default deadline of one call into a runner."""
    first_uid: int = Field(64000, ge=1000)
    """Started as root, slot n runs as user first_uid + n."""
    task_s: int = Field(900, gt=0)
    """Longest evaluation or screening; half a minute later its process is killed."""
    family_budget_s: float = Field(60.0, gt=0)
    """How long one candidate's input families may take; the required ones run even past it."""
    reference_s: float = Field(30.0, gt=0)
    """Deadline of one forward of an op that is being screened."""
    interpreter_bytes: int = Field(64 << 20, ge=1)
    """Largest inputs of an op that the interpreter takes."""
