"""The main job in a browser, on the whole stack: upload, follow, download, and use what was downloaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import sign_in
from tests.stack import PASSWORD, REPOSITORY, USERNAME, Stack

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(420)]

SAMPLE = REPOSITORY / "webapp/ops/samples/rms_norm_residual.py"
COMPARE = """
import importlib.util, os, sys
os.environ["TRITON_INTERPRET"] = "1"
import torch
from triton.runtime.autotuner import Autotuner

# Without a GPU the autotuner has nothing to time with: it takes its first configuration.
Autotuner._bench = lambda self, *args, config, **meta: [0.0, 0.0, 0.0]

def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

op, kernel = load("op", sys.argv[1]), load("kernel", sys.argv[2])
torch.manual_seed(7)
reference = op.Model(*op.get_init_inputs()).eval()
candidate = kernel.ModelNew(*op.get_init_inputs()).eval()
for parameter in reference.parameters():
    torch.nn.init.normal_(parameter, 1.0, 0.2)
candidate.load_state_dict(reference.state_dict())
inputs = op.get_inputs()
with torch.no_grad():
    torch.testing.assert_close(candidate(*inputs), reference(*inputs), rtol=1e-4, atol=1e-4)
"""


def test_an_uploaded_op_becomes_a_kernel_that_runs_elsewhere(stack: Stack, page: Page, tmp_path: Path) -> None:
    sign_in(page, stack.url, USERNAME, PASSWORD)
    page.goto(f"{stack.url}/ops/new/")
    page.get_by_label("Name").fill("rms norm")
    page.locator("input[type=file]").set_input_files(SAMPLE)
    page.get_by_role("button", name="Upload and screen").click()

    optimise = page.get_by_role("button", name="Optimise")
    expect(optimise).to_be_enabled(timeout=150_000)
    optimise.click()

    page.evaluate("window.marker = 'not reloaded'")
    result = page.locator("#result")
    expect(result.or_(page.locator(".callout h2"))).to_be_visible(timeout=200_000)
    expect(result).to_contain_text("predicted")
    assert page.evaluate("window.marker") == "not reloaded"

    with page.expect_download() as download:
        result.get_by_role("link", name="Download .py").click()
    assert download.value.suggested_filename == "rms_norm_h200_v1.py"
    kernel = tmp_path / download.value.suggested_filename
    download.value.save_as(kernel)
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(SAMPLE), str(kernel)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
