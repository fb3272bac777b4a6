"""After a reboot: what ran is `ended (reboot)`, and one command brings it back."""

import os
import signal
from pathlib import Path

import pytest

from tests.hub.pen import Pen
from tests.hub.pods.support import asked, launch, write_role, write_template
from tests.hub.programs import SLEEP
from tests.hub.reboot import rebooted
from tests.processes import kill
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

pytestmark = pytest.mark.slow


@pytest.mark.few(1)
@pytest.mark.parametrize("is_flushed", [True, False], ids=["records", "no records"])
def test_b10_what_ran_is_ended_by_the_reboot_and_all_of_it_comes_back(
    pen: Pen, is_flushed: bool
) -> None:
    for name in ("amy", "bob", "off"):
        pen.run(name=name)
    pen.stop("off")
    rebooted(pen, is_flushed=is_flushed)
    listed = pen.cli("list").out
    assert "2 agents were interrupted · bullpen resume --all" in listed
    assert {name: pen.state(name) for name in ("amy", "bob")} == dict.fromkeys(
        ("amy", "bob"), "ended (reboot)"
    )
    assert pen.events("amy", "agent.stopped")[-1]["ended"] == "reboot"
    assert "gone by a restart of the machine" in pen.cli("explain", "amy").out
    runs = {name: agent["run"] for name, agent in pen.agents().items()}
    resumed = pen.cli("resume", "--all")
    assert resumed.code == 0, resumed.err
    assert "amy resumed" in resumed.out
    after = pen.agents()
    assert {name: agent["running"] for name, agent in after.items()} == {
        "amy": True,
        "bob": True,
        "off": False,
    }
    assert after["amy"]["run"] != runs["amy"]
    assert "interrupted" not in pen.cli("list").out
    assert pen.cli("resume").out == "no agent was interrupted · by name: bullpen resume NAME\n"


@pytest.mark.storm
def test_b10_a_program_that_was_killed_from_outside_is_named_and_comes_back(pen: Pen) -> None:
    """As when memory ran out; not one that was stopped, or ended by itself."""
    for name in ("amy", "bob", "cleo"):
        pen.run(name=name)
    assert pen.cli("kill", "bob").code == 0
    pen.stop("cleo")
    os.kill(pen.program("amy"), signal.SIGKILL)
    wait_until(lambda: pen.state("amy") == "exited (signal 9)")
    last = pen.cli("list").out.splitlines()[-1]
    assert last == "1 agent was interrupted · bullpen resume --all"
    pen.kill_hub()
    pen.start()
    assert pen.cli("list").out.splitlines()[-1] == last
    assert pen.cli("resume", "--all").out.split(" · ")[0] == "amy resumed"
    running = {name for name, agent in pen.agents().items() if agent["running"]}
    assert running == {"amy"}


@pytest.mark.storm
def test_b10_an_end_in_this_boot_is_no_reboot(pen: Pen) -> None:
    pen.run(name="amy")
    rebooted(pen)
    pen.start()
    pen.client().post("agents", "amy", "resume")
    pen.kill_hub()
    kill(pen.holder("amy"))
    pen.start()
    wait_until(lambda: pen.state("amy") == "lost (its holder was killed)")
    assert "1 agent was interrupted · bullpen resume --all" in pen.cli("list").out
    assert pen.cli("resume", "--all").out.startswith("amy resumed")


def test_b10_a_machine_that_goes_down_in_order_ends_agents_by_a_reboot_too(pen: Pen) -> None:
    """Then holders get SIGTERM, end their programs and leave records of that."""
    pen.run(name="seen")
    pen.run(name="unseen")
    os.kill(pen.holder("seen"), signal.SIGTERM)
    wait_until(lambda: pen.state("seen") == "ended (terminated)")
    pen.kill_hub()
    os.kill(pen.holder("unseen"), signal.SIGTERM)
    wait_until((pen.session("unseen") / "exit.json").exists)
    rebooted(pen)
    pen.start()
    assert {agent["words"] for agent in pen.agents().values()} == {"ended (reboot)"}
    assert pen.cli("resume").code == 0
    assert all(agent["running"] for agent in pen.agents().values())


def test_b10_a_running_agent_is_refused_by_resume_and_goes_on(pen: Pen) -> None:
    pen.run(name="amy")
    program = pen.program("amy")
    refused = pen.cli("resume", "amy")
    assert (refused.code, refused.err.splitlines()[0]) == (5, "error: amy is running")
    assert pen.program("amy") == program
    assert pen.state("amy").startswith("unknown")


def test_b10_a_pod_begins_no_new_conversations_in_place_of_those_that_a_reboot_cut(
    pen: Pen, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    write_role(pen, "worker", SLEEP)
    write_template(pen, "duo", "name: ann, role: worker", "name: ben, role: worker")
    pen.start()
    assert launch(pen, asked(pen, "duo", repo))[-1]["step"] == "running"
    rebooted(pen)
    pen.start()
    refused = launch(pen, asked(pen, "duo", repo))[0]
    assert refused["message"].startswith("ann, ben: ended by a reboot")
    assert refused["details"]["hint"].startswith("bullpen resume --pod duo · ")
    assert pen.cli("resume", "--pod", "duo").code == 0
    assert all(agent["running"] for agent in pen.agents().values())
