"""`python -m services.inference doctor` and `python -m services.inference propose REQUEST.json`: no web, no broker."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from services.contracts import ProposeOutcome, Proposer, ProposeRequest
from services.inference.proposers import propose
from services.inference.settings import InferenceSettings, SettingsError, load_settings


class Check(NamedTuple):
    """One line of the doctor: `mend` says what to do where it is not well."""

    what: str
    well: bool
    detail: str


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m services.inference", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="say what is configured, whether it answers, and what to change")
    ask = commands.add_parser("propose", help="candidates for one request, as JSON on standard output")
    ask.add_argument("request", help="a file that holds a ProposeRequest as JSON; - for standard input")
    ask.add_argument("--proposer", choices=[proposer.value for proposer in Proposer], help="in place of the request's")
    options = parser.parse_args(arguments)
    try:
        if options.command == "doctor":
            return doctor()
        return propose_once(options.request, options.proposer)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2


def doctor() -> int:
    """Prints one line for each part; 1 where something that is configured does not work."""
    checks = [check_seed(), *check_model(load_settings())]
    for check in checks:
        print(f"{'ok  ' if check.well else 'MEND'}  {check.what}: {check.detail}")
    return 0 if all(check.well for check in checks) else 1


def check_seed() -> Check:
    """Whether the compiler seed can be used here."""
    try:
        from services.inference.seed import propose_seed
    except ImportError as error:
        return Check("seed", False, f"{error}: pip install 'warpsmith[inference]'")
    return Check("seed", True, f"{propose_seed.__name__} is ready, no model needed")


def check_model(settings: InferenceSettings) -> Iterator[Check]:
    """Whether a model is configured, listed, and answers one short question."""
    if not settings.configured:
        yield Check("model", True, "none configured; set INFERENCE_BASE_URL to use one")
        return
    from services.inference.llm.client import ModelClient
    from services.inference.llm.faults import ModelFault

    key = "with a key" if settings.api_key.get_secret_value() else "without a key"
    yield Check("configured", True, f"{settings.base_url} {key}, model {settings.model or '(the first listed)'}")
    try:
        with ModelClient(settings.model_copy(update={"retries": 0})) as client:
            names = [model.name for model in client.models()]
            yield Check("models", True, ", ".join(names) or "the server lists none")
            started = time.monotonic()
            model = client.resolve_model().name
            client.sample(model, [{"role": "user", "content": "Say ok."}], count=1, seed=1, max_tokens=16)
            yield Check("model", True, f"{model} answered in {time.monotonic() - started:.1f} s")
    except ModelFault as fault:
        yield Check("model", False, fault.reason)


def propose_once(path: str, proposer: str | None) -> int:
    """Prints the ProposeResult; 0 where there is a proposal, 1 where there is none, 2 for a request it cannot read."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        request = ProposeRequest.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        print(f"{path} cannot be read: {error}", file=sys.stderr)
        return 2
    except ValidationError as error:
        for item in error.errors():
            print(f"{path}: {'.'.join(map(str, item['loc'])) or 'request'}: {item['msg']}", file=sys.stderr)
        return 2
    if proposer is not None:
        request = request.model_copy(update={"proposer": Proposer(proposer)})
    result = propose(request)
    print(result.model_dump_json(indent=2))
    return 0 if result.outcome is ProposeOutcome.PROPOSED else 1


if __name__ == "__main__":
    sys.exit(main())
