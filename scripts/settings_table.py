"""Write the table of settings in docs/operations.md from the settings classes: `make docs`; `--check` only compares."""

import ast
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/operations.md"
START, END = "<!-- settings -->\n", "<!-- end of settings -->\n"
SECTIONS = {
    "Web": "webapp.config.WebSettings",
    "Broker (every process)": "services.broker.BrokerSettings",
    "Sandbox workers": "services.sandbox.settings.SandboxSettings",
    "Inference workers": "services.inference.settings.InferenceSettings",
}


def load(path: str) -> type[BaseSettings]:
    """The settings class with this dotted name."""
    module, name = path.rsplit(".", 1)
    loaded: type[BaseSettings] = getattr(importlib.import_module(module), name)
    return loaded


def descriptions(settings: type[BaseSettings]) -> dict[str, str]:
    """The texts under the fields of a settings class, which pydantic does not keep."""
    body = ast.parse(inspect.getsource(settings)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - for the type checker
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = " ".join(words.split())
    return found


def shown(value: Any) -> str:
    """A default as the environment would give it."""
    if isinstance(value, SecretStr) or value in (None, "", []):
        return "-"
    if isinstance(value, list):
        return f"`{','.join(value)}`"
    if isinstance(value, Path) and value.is_relative_to(ROOT):
        return f"`{value.relative_to(ROOT)}/` of the checkout"
    return f"`{value}`"


def rows(settings: type[BaseSettings]) -> list[str]:
    """One line of the table for each setting."""
    texts = descriptions(settings)
    prefix = settings.model_config.get("env_prefix", "").upper()
    return [
        f"| `{prefix}{name.upper()}` | {shown(field.default)} | {texts.get(name, '')} |"
        for name, field in settings.model_fields.items()
    ]


def table() -> str:
    """All settings, one table for each process."""
    parts = []
    for title, path in SECTIONS.items():
        parts += ["", f"### {title}", "", "| variable | default | what it does |", "|---|---|---|", *rows(load(path))]
    return "\n".join([*parts, "", ""])


def main(arguments: list[str]) -> int:
    """Bring the page up to date; with --check, 1 where it is not."""
    text = PAGE.read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    wanted = f"{before}{START}{table()}{END}{after}"
    if wanted == text:
        return 0
    if "--check" in arguments:
        print("docs/operations.md: the table of settings is out of date: run `make docs`.")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
