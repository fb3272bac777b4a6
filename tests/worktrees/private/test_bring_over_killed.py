"""A bring-over that is killed between any two steps: no commit is lost, the next one goes on.

What is killed is the whole of what happens to a store at an end and at the next start: refresh,
bring-over, clearing, making it anew.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.sandboxes.inside import StoreSandbox
from bullpen.worktrees.private.bring_over import bring_over
from bullpen.worktrees.private.make import begin_use
from bullpen.worktrees.private.refresh import refresh
from bullpen.worktrees.private.work import clear
from tests.sandboxes.machine import Machine
from tests.worktrees.killed import died_at_effect, died_once


def end_and_begin(machine: Machine) -> None:
    store, inside = machine.store, StoreSandbox(machine.store)
    refresh(store, inside)
    bring_over(store, inside, has_ended=True)
    clear(store, inside)
    if begin_use(store):
        refresh(store, inside)


def lfs_object(machine: Machine, text: str) -> tuple[str, Path]:
    """What makes one inside, and where it comes to."""
    name = hashlib.sha256(text.encode()).hexdigest()
    directory = f"lfs/objects/{name[:2]}/{name[2:4]}"
    common = "$(git rev-parse --git-common-dir)"
    script = f"mkdir -p {common}/{directory}; printf {text} >{common}/{directory}/{name};"
    return script, machine.common / directory / name


def go_through(machine: Machine, word: str, died: Callable[[Callable[[], None]], bool]) -> bool:
    """One life that is killed somewhere, and all that has to be true after the next; whether it
    was killed."""
    script, large = lfs_object(machine, word)
    machine.shell(f"echo {word} >file; git add file; git commit -qm {word}; {script}")
    machine.git("branch", f"outside-{word}")  # for the refresh
    is_dead = died(lambda: end_and_begin(machine))
    # It goes on working meanwhile.
    said = machine.shell(f"git commit -q --allow-empty -m more-{word}; git branch")
    assert f"outside-{word}" in said
    outcome = machine.bring_over()
    assert (outcome.state.diverged, outcome.state.refused) == ("", {}), word
    assert outcome.state.moving == {}
    assert machine.git("log", "-2", "--format=%s", "amy").split() == [f"more-{word}", word]
    assert machine.git("status", "--porcelain", "-uno", cwd=machine.cwd) == ""
    assert large.read_text() == word
    assert not (machine.admin / "index.lock").exists()
    assert not list(large.parent.glob(".*"))
    return is_dead


def moments(machine: Machine, word: str) -> dict[str, Callable[[], bool]]:
    """What can be seen from outside at steps that matter."""
    branch = machine.common / "refs" / "heads" / "amy"
    before = branch.read_text() if branch.exists() else ""
    return {
        "an LFS object has come": lfs_object(machine, word)[1].exists,
        "the branch has moved": lambda: branch.exists() and branch.read_text() != before,
        "the index is being replaced": (machine.admin / "index.lock").exists,
        "the store is gone": lambda: not machine.store.exists,
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_x7_a_bring_over_that_is_killed_is_finished_by_the_next(
    machine: Machine, number: int
) -> None:
    if machine.uid != os.getuid():
        pytest.skip("the process that is killed is our own")
    word = f"w{number}"
    name, is_time = list(moments(machine, word).items())[number]
    assert go_through(machine, word, lambda work: died_once(is_time, work)), name


@pytest.mark.storm
@pytest.mark.parametrize("part", range(8))
def test_x7_killed_before_any_of_its_effects(machine: Machine, part: int) -> None:
    if machine.uid != os.getuid():
        pytest.skip("the process that is killed is our own")
    step = part + 1
    while go_through(machine, f"w{step}", lambda work: died_at_effect(step, work)):  # noqa: B023
        step += 8
    assert step > 50
    assert machine.git("fsck", "--no-dangling") == ""
