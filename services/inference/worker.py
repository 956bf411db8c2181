"""The inference worker: `celery -A services.broker worker -I services.inference.worker -Q inference -c 1`."""

import logging
import platform
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from celery.signals import worker_process_init

from services.broker import INFERENCE_QUEUE
from services.contracts import WorkerReport
from services.inference.proposers import warm_seed
from services.inference.settings import InferenceSettings, SettingsError, load_settings
from services.reports import report_worker

try:
    load_settings()
except SettingsError as error:
    raise SystemExit(f"The inference worker cannot start: {error}") from None

from services.inference import tasks

__all__ = ["tasks"]

log = logging.getLogger(__name__)

CHECK_TIMEOUT_S = 2.0
"""Wait for the model server in a report: the worker takes no message meanwhile."""


def describe_worker(hostname: str) -> WorkerReport:
    """What this worker serves."""
    model, note = describe_model(load_settings())
    return WorkerReport(
        name=hostname,
        queue=INFERENCE_QUEUE,
        versions={"python": platform.python_version(), **installed_versions("torch", "triton", "openai")},
        model=model,
        note=note,
    )


def describe_model(settings: InferenceSettings) -> tuple[str, str]:
    """The model's name, empty where none is configured, and what is wrong with it."""
    if not settings.configured:
        return "", ""
    from services.inference.llm.client import ModelClient
    from services.inference.llm.faults import ModelFault

    model = settings.model or f"first model of {settings.host}"
    try:
        with ModelClient(settings) as client:
            names = [served.name for served in client.models(CHECK_TIMEOUT_S)]
    except ModelFault as fault:
        return model, fault.reason
    if settings.model:
        return model, "" if model in names else f"The server lists {', '.join(names) or 'no model'}, not {model}."
    return (names[0], "") if names else (model, f"The server at {settings.host} lists no model.")


def installed_versions(*packages: str) -> dict[str, str]:
    """Version of each package that is installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@worker_process_init.connect
def warm(**_: Any) -> None:
    """Warm the seed on a thread: the pool kills a process that is not up within 4 s."""
    threading.Thread(target=_warm_seed, name="warm-seed", daemon=True).start()


def _warm_seed() -> None:
    try:
        warm_seed()
    except Exception:
        log.exception("the seed is not warm; a turn that asks for it says why")


report_worker(describe_worker)
