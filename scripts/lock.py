"""Write requirements/*.txt from pyproject.toml: `make lock`, or `make lock UPGRADE=1` for newer versions."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
CONSTRAINTS = FOLDER / "constraints.txt"
ROLES = {
    "web": ["web"],
    "sandbox": ["sandbox"],
    "inference": ["inference"],
    "trainer": ["trainer"],
    "gpu": ["sandbox", "gpu"],
    "all": ["web", "sandbox", "inference"],
    "dev": ["web", "sandbox", "inference", "dev"],
}
EXTRAS = ["web", "sandbox", "inference", "trainer", "gpu", "dev"]
# A CPU build of torch needs none of them and a CUDA build pins its own, so only the GPU role locks them.
CUDA_LIBRARY = re.compile(r"^(nvidia-(?!ml-py)|cuda-)")
CONSTRAINT_NOTE = re.compile(r", -c requirements/\S+|-c requirements/\S+, ")


def header(extras: list[str]) -> str:
    """The first line of a lock file."""
    return f"# Made by `make lock` from pyproject.toml [{','.join(extras)}]. Do not edit.\n"


def compile_lock(uv: Path, extras: list[str], target: Path, *options: str) -> None:
    """Resolve these extras for every supported Python and platform into `target`; its present versions are kept."""
    command = [str(uv), "pip", "compile", "pyproject.toml", "--universal", "--no-header", "--quiet"]
    command += ["--annotation-style", "line", "-o", str(target.relative_to(ROOT)), *options]
    for extra in extras:
        command += ["--extra", extra]
    # uv would else fetch a Python of its own from outside the package index.
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
    lines = [CONSTRAINT_NOTE.sub("", line) for line in target.read_text().splitlines(keepends=True)]
    if "gpu" not in extras:
        lines = [line for line in lines if not CUDA_LIBRARY.match(line)]
    target.write_text(header(extras) + "".join(lines))


def install_uv(folder: Path) -> Path:
    """Put uv into a throw-away environment and give its path."""
    venv.create(folder, with_pip=True)
    subprocess.run([str(folder / "bin/pip"), "install", "--quiet", "uv"], check=True)
    return folder / "bin/uv"


def main(arguments: list[str]) -> None:
    """Resolve everything together once, then each role within it, so that any two roles share an environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    upgrade = ["--upgrade"] if parser.parse_args(arguments).upgrade else []
    with tempfile.TemporaryDirectory() as folder:
        uv = install_uv(Path(folder))
        compile_lock(uv, EXTRAS, CONSTRAINTS, *upgrade)
        for role, extras in ROLES.items():
            target = FOLDER / f"{role}.txt"
            compile_lock(uv, extras, target, "--constraints", str(CONSTRAINTS.relative_to(ROOT)), "--upgrade")
            print(target.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
