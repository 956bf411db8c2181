"""Writes to ops."""

import hashlib
from functools import partial

from django.db import transaction

from services.broker import HOST_QUEUE, SCREEN_OP
from services.contracts import Progress, ScreeningReport, ScreenRequest, ScreenStatus, TolerancePolicy, target_spec
from webapp.accounts.models import Team, User
from webapp.dispatch import queued_lease, send_on_commit, working_lease
from webapp.ops.models import Op
from webapp.ops.states import ACTIVE, OpState
from webapp.settings import ENV

_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF": "a PDF",
    b"\x7fELF": "a compiled program",
}


class BadSource(ValueError):
    """The upload is not Python source; the message says what it is and what to do."""


def check_size(size_bytes: int) -> None:
    """Raises BadSource where a source of this size is too large."""
    if size_bytes > ENV.max_source_bytes:
        raise BadSource(
            f"This is {size_bytes / 1e6:.1f} MB; an op's source may have {ENV.max_source_bytes / 1e6:.0f} MB. "
            "Upload the module's source only, and make large tensors in get_inputs()."
        )


def decode_source(data: bytes) -> str:
    """The source text of an upload, with Unix line ends. Raises BadSource in plain words."""
    check_size(len(data))
    for magic, what in _ARCHIVES.items():
        if data.startswith(magic):
            raise BadSource(f"This is {what}, not Python source. Upload one .py file.")
    if b"\x00" in data:
        raise BadSource("This holds NUL bytes, so it is not Python source. Save it as UTF-8 text and upload it again.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSource(
            f"This is not UTF-8 text (byte {error.start + 1}). Save the file as UTF-8 and upload it again."
        ) from error
    if not text.strip():
        raise BadSource("This is empty. Paste or upload source that defines Model, get_inputs() and get_init_inputs().")
    if text.lstrip().startswith("{") and '"cells"' in text:
        raise BadSource("This is a notebook. Export it as a .py file with Model and get_inputs() and upload that.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@transaction.atomic
def create_op(
    team: Team, owner: User, name: str, source: str, *, target: str, policy: TolerancePolicy = TolerancePolicy.STANDARD
) -> Op:
    """Keep an uploaded op and have it screened. Raises ValueError for an unknown target."""
    op = Op.objects.create(
        team=team,
        owner=owner,
        name=name,
        source=source,
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        target=target_spec(target).name,
        policy=policy,
        lease_until=queued_lease(),
    )
    _send_screening(op)
    return op


@transaction.atomic
def screen_again(op: Op) -> bool:
    """Screen an op once more; False while it is being screened."""
    moved = op.move(
        OpState.QUEUED, only_from=frozenset(OpState) - ACTIVE, attempt=1, problem="", lease_until=queued_lease()
    )
    if moved:
        Op.touch(op.pk)
        _send_screening(op)
    return moved


def _send_screening(op: Op) -> None:
    request = ScreenRequest(op=op.spec(), target=op.target)
    send_on_commit(SCREEN_OP, request, queue=HOST_QUEUE, expires=op.lease_until, unsent=partial(_send_soon, op.pk))


def _send_soon(op_id: int) -> None:
    """The broker was away: do not wait for a lease as long as that of a message that is in its queue."""
    Op.objects.filter(pk=op_id, state=OpState.QUEUED).update(lease_until=working_lease())


@transaction.atomic
def record_screening_progress(op_id: int, progress: Progress) -> None:
    """A worker screens the op: renew its lease."""
    op = Op.objects.filter(pk=op_id).first()
    if op is None:
        return
    if op.move(OpState.SCREENING, only_from={OpState.QUEUED}, lease_until=working_lease()):
        Op.touch(op.pk)
    else:
        Op.objects.filter(pk=op_id, state=OpState.SCREENING).update(lease_until=working_lease())


@transaction.atomic
def record_screening(report: ScreeningReport) -> None:
    """Keep a screening report; a second answer to the same question is dropped."""
    op = Op.objects.filter(pk=int(report.op_id)).first()
    if op is None or op.state not in ACTIVE:
        return
    if report.status is ScreenStatus.INFRASTRUCTURE:
        what = report.findings[-1] if report.findings else None
        why = ": ".join(filter(None, (what.title, what.detail))) if what else "The sandbox had a fault of its own"
        retry_screening(op, f"{why.rstrip('.')}.", counts=True)
        return
    state = OpState.READY if report.status is ScreenStatus.ACCEPTED else OpState.REFUSED
    op.move(
        state,
        report_json=report.model_dump(mode="json", exclude={"graph"}),
        graph_json=report.graph.model_dump(mode="json") if report.graph else None,
        lease_until=None,
    )
    Op.touch(op.pk)


def retry_screening(op: Op, why: str, *, counts: bool) -> None:
    """Send a lost screening again; errored after the last attempt that `counts`."""
    Op.touch(op.pk)
    if counts and op.attempt >= ENV.max_attempts:
        op.move(OpState.ERRORED, problem=f"{why} Tried {op.attempt} times.", lease_until=None)
        return
    unchanged = Op.objects.filter(pk=op.pk, state=op.state, attempt=op.attempt)
    if unchanged.update(state=OpState.QUEUED, attempt=op.attempt + counts, lease_until=queued_lease()):
        op.refresh_from_db()
        _send_screening(op)
