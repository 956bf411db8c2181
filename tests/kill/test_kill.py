"""kill -9 of any process in mid-run: every run still ends with its verdict, and none has two."""

import json
from pathlib import Path

import psutil
import pytest

from tests.stack import USERNAME, Stack, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420), pytest.mark.xdist_group("kill")]

START = f"""
from webapp.accounts.models import User
from webapp.accounts.services import ensure_team
from webapp.ops.models import Op
from webapp.ops.selectors import samples
from webapp.ops.services import create_op
user = User.objects.get(username={USERNAME!r})
source = next(sample.source for sample in samples() if sample.slug == "gelu_bias")
print(create_op(ensure_team(user), user, "kill", source, target="h200").pk)
"""
RUN = f"""
from webapp.accounts.models import User
from webapp.ops.models import Op
from webapp.runs.services import start_run
user = User.objects.get(username={USERNAME!r})
for _ in range({{count}}):
    print(start_run(Op.objects.get(pk={{op}}), user).pk)
"""
_RUNS = "(SELECT value FROM json_each(?))"
STARTED = f"SELECT 1 FROM runs_turn WHERE run_id IN {_RUNS}"  # noqa: S608
STATES = f"SELECT id, state FROM runs_run WHERE id IN {_RUNS} ORDER BY id"  # noqa: S608
ACTIVE = f"SELECT 1 FROM runs_run WHERE finished_at IS NULL AND id IN {_RUNS}"  # noqa: S608
EVALUATING = f"""
    SELECT 1 FROM runs_candidate c JOIN runs_turn t ON t.id = c.turn_id
    WHERE c.state = 'evaluating' AND t.run_id IN {_RUNS}"""  # noqa: S608
VERDICTS = f"""
    SELECT t.run_id, COUNT(*) FROM runs_evaluation e JOIN runs_candidate c ON c.id = e.candidate_id
    JOIN runs_turn t ON t.id = c.turn_id WHERE t.run_id IN {_RUNS} GROUP BY t.run_id ORDER BY t.run_id"""  # noqa: S608


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Stack:  # type: ignore[misc]
    home: Path = tmp_path_factory.mktemp("kill") / "home"
    # Workers renew a lease every 10 s, so 13 s is the shortest that a living worker keeps.
    with running(home, WORKING_LEASE_S="13", QUEUED_LEASE_S="25", RECOVER_EVERY_S="1") as stack:
        yield stack


@pytest.fixture(scope="module")
def op(killed: Stack) -> int:
    pk = int(killed.shell(START))
    killed.wait_for(lambda: _op_state(killed, pk) not in {"queued", "screening"}, 120, "the screening")
    assert _op_state(killed, pk) == "ready"
    return pk


def _op_state(stack: Stack, pk: int) -> str:
    return str(stack.rows("SELECT state FROM ops_op WHERE id = ?", pk)[0][0])


@pytest.mark.parametrize("victim", ["sandbox.cpu", "inference", "runs", "broker", "beat", "web"])
def test_a_killed_process_loses_nothing(killed: Stack, op: int, victim: str) -> None:
    pks = [int(pk) for pk in killed.shell(RUN.format(op=op, count=2)).split()]
    run_ids = json.dumps(pks)
    in_work = EVALUATING if victim == "sandbox.cpu" else STARTED
    killed.wait_for(lambda: killed.rows(in_work, run_ids), 60, f"work for {victim}")

    killed.worker(victim).kill()
    assert killed.wait_end() != 0, "one that dies ends all"
    assert "ended by itself" in killed.log()
    killed.start()

    killed.wait_for(lambda: not killed.rows(ACTIVE, run_ids), 150, "both runs to end")
    assert killed.rows(STATES, run_ids) == [(pk, "passed") for pk in pks]
    assert killed.rows(VERDICTS, run_ids) == [(pk, 1) for pk in pks]


def test_a_killed_supervisor_leaves_nothing_in_the_way(killed: Stack, op: int) -> None:
    (pk,) = (int(pk) for pk in killed.shell(RUN.format(op=op, count=1)).split())
    run_ids = json.dumps([pk])
    killed.wait_for(lambda: killed.rows(STARTED, run_ids), 60, "the run to start")
    assert killed.process is not None
    orphans = psutil.Process(killed.process.pid).children(recursive=True)
    killed.process.kill()
    assert killed.wait_end() != 0
    killed.start()
    killed.wait_for(lambda: not killed.rows(ACTIVE, run_ids), 150, "the run to end")
    assert killed.rows(STATES, run_ids) == [(pk, "passed")]
    _, left = psutil.wait_procs(orphans, timeout=10)
    assert not left
