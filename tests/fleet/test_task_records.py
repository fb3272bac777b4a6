"""What hosts write about tasks counts if the host that it names has signed it for that place."""

import base64
import time

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet.credential import issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.subjects import queued, task_key
from bullpen.fleet.task_records import (
    MOST_BYTES,
    Result,
    Signed,
    Standing,
    TaskRecord,
    by_own_clock,
    name_need,
    parse_need,
)
from bullpen.hub.fleet_tasks.local import _result
from bullpen.model.task import Completed, Run, Task, Wish

AUTHORITY = make_seed()
H1, H2 = (Signed(issue(AUTHORITY, host, make_seed())) for host in ("h1", "h2"))
STRANGER = Signed(issue(make_seed(), "h1", make_seed()))
NEED = name_need("dev", {"gpu": "yes"})
ASKED = TaskRecord(at=1.0, wish=Wish(prompt="tidy up"), role="dev", labels={"gpu": "yes"})
ENDED = Standing(
    kind="ended", epoch=2, by="h2", agent="tim", result=Result(status=Completed(), ended=2.0)
)
PLACE, KEY = queued("h1", NEED, "t-1"), task_key("h1", "t-1")


def test_l3_what_the_asker_has_signed_is_read_by_others() -> None:
    assert H2.read_asked(PLACE, H1.write(PLACE, ASKED)) == ASKED
    assert H1.read_standing(KEY, H2.write(KEY, ENDED)) == ENDED


FORGED = {
    "another host asks in its name": H2.write(PLACE, ASKED),
    "a key of another fleet": STRANGER.write(PLACE, ASKED),
    "of another task": H1.write(queued("h1", NEED, "t-2"), ASKED),
    "for others": H1.write(queued("h1", name_need("ops", {}), "t-1"), ASKED),
    "changed": H1.write(PLACE, ASKED).replace(b"tidy up", b"rm -rf "),
}


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.parametrize("is_checked", [True, False])
def test_l3_what_the_asker_never_said_is_refused(
    how: str, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_checked:
        with pytest.raises(BullpenError):
            H2.read_asked(PLACE, FORGED[how])
    else:  # so it fails for want of the key alone
        monkeypatch.setattr(Signed, "check", lambda *_: None)
        assert H2.read_asked(PLACE, FORGED[how]).role == "dev"


@pytest.mark.parametrize("is_checked", [True, False])
def test_l3_no_host_ends_a_task_in_the_name_of_another(
    is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = H1.write(KEY, ENDED)
    if is_checked:
        with pytest.raises(BullpenError, match="the fleet has given no such key to h2"):
            H1.read_standing(KEY, data)
    else:
        monkeypatch.setattr(Signed, "check", lambda *_: None)
        assert H1.read_standing(KEY, data).by == "h2"


NONSENSE = [
    b"",
    b"\0" * 64 + b"{}\n{}",
    b"\0" * 64 + b'{"n":0,"kind":"Standing"}\n{}',
    b"\0" * 64 + b'{"n":0,"kind":"Standing","key":[1]}\n{}',
    b"\0" * 64 + b'{"n":0,"kind":"Standing","key":[1,2]}\n[]',
    H1.write(KEY, Standing(kind="ended", epoch=1, by="h1")),
    H1.write(KEY, ASKED),
]


@pytest.mark.parametrize("data", NONSENSE)
def test_l3_what_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(BullpenError):
        H1.read_standing(KEY, data)


@pytest.mark.parametrize("sandboxed", [False, True])
@pytest.mark.parametrize(("role", "labels"), [("", {}), ("dev", {"b": "é", "a": "x.y *>"})])
def test_l3_what_a_task_needs_is_a_word_of_a_subject(
    role: str, labels: dict[str, str], sandboxed: bool
) -> None:
    word = name_need(role, labels, sandboxed=sandboxed)
    assert word.replace("-", "").replace("_", "").isalnum()
    assert parse_need(word) == (role, labels, sandboxed)


LATER = base64.urlsafe_b64encode(b'["", [], true, "x"]').decode().rstrip("=")


@pytest.mark.parametrize("word", ["", "x", "é", "W10", "bnVsbA", "WyJhIl0", LATER])
def test_l3_a_need_that_is_none_is_nobodys(word: str) -> None:
    assert parse_need(word) is None


@pytest.mark.parametrize("letter", ["x", "\x00", "é", "\N{GRINNING FACE}"])
def test_l3_whatever_a_task_says_its_end_fits_into_one_message(letter: str) -> None:
    task = Task(
        id="t-1",
        session_id="s",
        wish=Wish(prompt="it"),
        created=1.0,
        ended=time.time(),
        status=Completed(),
        output=letter * (2 << 20),
        warnings=(letter * 10_000,) * 100,
        commits=(letter * 10_000,) * 100,
    )
    result = _result(task, (), None)
    data = H2.write(KEY, ENDED.model_copy(update={"result": result}))
    assert len(data) < MOST_BYTES
    assert result.output and set(result.output) == {letter} and len(result.output) > 10_000


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -86400.0])
def test_l1_a_task_that_a_machine_with_a_wrong_clock_did_has_the_times_of_this_one(
    ahead: float,
) -> None:
    created, now = 1000.0, 1060.0
    run = Run(number=1, began=1001.0 + ahead, ended=1059.0 + ahead)
    there = Result(status=Completed(), started=1000.5 + ahead, ended=1059.5 + ahead, runs=(run,))
    here = by_own_clock(there, created, now)
    assert here.started is not None
    assert created <= here.started <= here.runs[0].began <= here.runs[0].ended <= here.ended <= now
    assert here.ended - here.started == pytest.approx(59.0)
    assert ahead or here == there
