import pytest

from services.contracts import OpSpec, ScreeningReport, ScreenRequest, ScreenStatus, Severity
from services.sandbox.judge.screening import screen
from services.sandbox.judge.tests.sources import PLAIN_OP
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings


def _screen(runners: Runners, source: str, settings: SandboxSettings | None = None) -> ScreeningReport:
    op = OpSpec(op_id="1", name="op", source=source)
    return screen(ScreenRequest(op=op), runners, settings=settings or SandboxSettings(reference_s=10.0))


def _codes(report: ScreeningReport) -> set[str]:
    return {finding.code for finding in report.findings} - {"launch_bound"}


def test_a_plain_op_is_accepted_with_facts_mutants_and_graph(runners: Runners) -> None:
    report = _screen(runners, PLAIN_OP)
    assert (report.status, _codes(report)) == (ScreenStatus.ACCEPTED, set())
    assert report.facts is not None
    assert report.facts.moved_bytes == 2 * 32 * 32 * 4
    assert report.facts.aten_ops == {"aten.sigmoid.default": 1}
    assert report.graph is not None


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("return torch.sigmoid(x)", "return torch.sigmoid(y)"), "forward_failed", 8),
        (("torch.randn(32, 32)", "torch.randn(32, q)"), "get_inputs_failed", 12),
        (("import torch\n", "import torch, no_such_module\n"), "load_failed", 2),
        (("def forward", "def __init__(self):\n        raise KeyError\n\n    def forward"), "load_failed", 8),
        (("return torch.sigmoid(x)", "import os; os._exit(0)"), "forward_failed", None),
        (("torch.randn(32, 32)", "torch.randn(8192, 8192)"), "needs_gpu_worker", None),
        (("torch.randn(32, 32)", "torch.empty(1 << 40)"), "out_of_memory", 12),
        (("torch.randn(32, 32)", "3.0"), "no_tensor_inputs", None),
        (("torch.randn(32, 32)", "torch.randn(4, 4, dtype=torch.complex64)"), "complex_input", None),
        (("torch.randn(32, 32)", "torch.randn(32, 32).to(torch.float8_e4m3fn)"), "unsupported_tensor", None),
        (("torch.sigmoid(x)", "x.to(torch.float8_e5m2)"), "unsupported_tensor", None),
        (("torch.sigmoid(x)", "3"), "no_tensor_output", None),
        (("torch.sigmoid(x)", "torch.ones(4)"), "output_ignores_input", None),
        (("torch.sigmoid(x)", "x"), "degenerate_identity", None),
        (("torch.sigmoid(x)", "x * torch.rand(())"), "random_output", None),
        (("torch.randn(32, 32)", "torch.randn(torch.randint(3, 3000, ()).item())"), "shapes_change", None),
        (("torch.randn(32, 32)", "torch.arange(32)"), "inputs_never_vary", None),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_with_its_reason(
    runners: Runners, change: tuple[str, str], code: str, line: int | None
) -> None:
    report = _screen(runners, PLAIN_OP.replace(*change))
    assert report.status is ScreenStatus.REFUSED, report.findings
    blockers = {finding.code: finding for finding in report.blockers}
    assert code in blockers, report.findings
    assert blockers[code].line == line
    assert blockers[code].mend


def test_a_float64_op_is_accepted(runners: Runners) -> None:
    report = _screen(runners, PLAIN_OP.replace("torch.randn(32, 32)", "torch.randn(32, 32, dtype=torch.float64)"))
    assert (report.status, _codes(report)) == (ScreenStatus.ACCEPTED, set())


def test_an_op_that_changes_its_own_buffer_is_refused(runners: Runners) -> None:
    source = PLAIN_OP.replace(
        "    def forward(self, x):\n        return torch.sigmoid(x)",
        "    def __init__(self):\n        super().__init__()\n        self.register_buffer('count', torch.zeros(()))\n"
        "    def forward(self, x):\n        self.count += 1\n        return x * self.count",
    )
    assert "stateful_forward" in _codes(_screen(runners, source))


def test_infinities_are_a_warning(runners: Runners) -> None:
    report = _screen(runners, PLAIN_OP.replace("torch.sigmoid(x)", "torch.where(x > 1, float('inf'), x * 2)"))
    assert report.status is ScreenStatus.ACCEPTED, report.findings
    (finding,) = [item for item in report.findings if item.code == "infinite_output"]
    assert finding.severity is Severity.WARNING


def test_inputs_that_require_gradients_are_named(runners: Runners) -> None:
    report = _screen(runners, PLAIN_OP.replace("torch.randn(32, 32)", "torch.randn(32, 32, requires_grad=True)"))
    assert report.status is ScreenStatus.ACCEPTED, report.findings
    assert "requires_grad" in _codes(report)


def test_an_op_of_which_only_half_is_read_is_a_warning(runners: Runners) -> None:
    report = _screen(runners, PLAIN_OP.replace("torch.sigmoid(x)", "torch.sigmoid(x[:16])"))
    assert report.status is ScreenStatus.ACCEPTED, report.findings
    assert "degenerate_half_the_work" in _codes(report)
    assert [item.mutant for item in report.mutants if not item.caught] == ["half the work"]


def test_a_fault_of_ours_is_infrastructure(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(runners.fence, "allocate", break_down)
    report = _screen(runners, PLAIN_OP)
    assert report.status is ScreenStatus.INFRASTRUCTURE
    assert "no space left" in report.findings[-1].detail


def test_too_many_parameters_need_a_gpu_worker(runners: Runners) -> None:
    source = PLAIN_OP.replace(
        "    def forward(self, x):\n",
        "    def __init__(self):\n        super().__init__()\n        self.big = nn.Parameter(torch.ones(1 << 13))\n\n"
        "    def forward(self, x):\n",
    )
    report = _screen(runners, source, SandboxSettings(interpreter_bytes=4096))
    (finding,) = report.findings
    assert finding.code == "needs_gpu_worker"
    assert "32.8 kB of parameters" in finding.detail
