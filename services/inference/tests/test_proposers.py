"""Each request goes to the proposer that it names, and nothing else is loaded for it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_worker_without_a_model_loads_neither_torch_nor_the_sdk() -> None:
    check = "import services.inference.worker, sys; print(sorted({'torch', 'openai'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_asking_a_model_does_not_load_torch() -> None:
    check = """
import sys
from services.contracts import OpSpec, ProposeRequest
from services.inference.proposers import propose
print(propose(ProposeRequest(turn_id="1", proposer="llm", op=OpSpec(op_id="1", name="x", source=""))).outcome)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["failed", "False"], done.stderr
