"""`config.yaml` changes while a hub runs."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen.files import write_atomically
from bullpen.home.settings import Settings, Worktrees
from bullpen.hub.settings_watch import changed_keys
from tests.hub.parts import Parts, in_parts, until
from tests.hub.pen import Pen
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo


def test_b1_changed_settings_are_named_by_their_keys() -> None:
    old = Settings()
    new = Settings(
        port=9100, stop_grace=timedelta(seconds=1), worktrees=Worktrees(base="trees", pool=2)
    )
    assert changed_keys(old, new) == {"port", "stop_grace", "worktrees.base", "worktrees.pool"}
    assert changed_keys(new, new) == frozenset()


def test_b1_settings_with_errors_are_told_in_one_line(pen: Pen) -> None:
    pen.start()
    with (pen.root / "config.yaml").open("a") as file:
        file.write("stop_grcae: 1s\nprot: 1\n")
    note = "config.yaml has 2 errors and is not used · bullpen validate"
    wait_until(lambda: pen.cli("list").out.splitlines()[-1] == note)


def config(pen: Pen) -> dict[str, object]:
    found: dict[str, object] = pen.client().get("status")["config"]
    return found


def test_b1_settings_that_change_count_at_once_and_what_needs_a_restart_is_said() -> None:
    async def story(parts: Parts) -> None:
        watch, file = parts.hub.settings_watch, parts.home.config_file
        context = parts.hub.context
        following = asyncio.create_task(watch.run())
        write_atomically(file, "worktrees: {base: trees}\nstop_grace: 7s\n")
        await until(lambda: context.settings.stop_grace == timedelta(seconds=7))
        assert (context.settings.worktrees.base, watch.note) == ("trees", "")
        write_atomically(file, "stop_grcae: 1s\n")
        await until(lambda: "config.yaml has 1 error and is not used" in watch.note)
        assert context.settings.stop_grace == timedelta(seconds=7)
        write_atomically(file, "port: 9999\n")
        await until(lambda: watch.note == "config.yaml: port · needs bullpen hub restart")
        file.unlink()
        await until(lambda: watch.note == "")
        following.cancel()

    level = logging.getLogger().level
    try:
        in_parts(story)
    finally:
        logging.getLogger().setLevel(level)


@pytest.mark.slow
@pytest.mark.storm
def test_b1_the_hub_takes_over_settings_that_change_and_says_what_needs_a_restart(
    pen: Pen, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    write_role(pen, "worker", list(SLEEP), "worktree: {enabled: true, branch_from: main}")
    file = pen.root / "config.yaml"
    before = file.read_text()
    words = ["run", "--role", "worker", "--detach", "--name"]
    assert pen.cli(*words, "old", cwd=repo).code == 0
    # Commands read the file themselves: hub and commands must not differ.
    file.write_text(f"{before}worktrees: {{base: trees}}\n")
    wait_until(lambda: "trees" in str(config(pen)["worktrees"]))
    assert pen.cli(*words, "new", cwd=repo).code == 0
    assert (pen.root / "trees" / "new").is_dir()
    # One that was made before stays where it is, and is let go of at its end.
    pen.stop("old")
    again = pen.cli(*words, "old", cwd=repo)
    assert f"worktree {pen.root / 'worktrees' / 'old'} on" in again.out, again.err
    # Errors change nothing, and are said.
    # In one step: an empty file, for a moment, would be settings without errors.
    write_atomically(file, f"{before}stop_grcae: 1s\n")
    wait_until(lambda: "config.yaml has 1 error and is not used" in pen.cli("list").out)
    assert "trees" in str(config(pen)["worktrees"])
    # By a link, as people keep their settings; a port is bound already.
    elsewhere = tmp_path / "config.yaml"
    elsewhere.write_text("port: 9999\nlog_level: debug\n")
    link = pen.root / "link"
    link.symlink_to(elsewhere)
    link.replace(file)
    note = "config.yaml: port · needs bullpen hub restart"
    wait_until(lambda: note in pen.cli("hub", "status").out)
    assert config(pen)["log_level"] == "debug"
    elsewhere.write_text(before)
    wait_until(lambda: note not in pen.cli("status").out)


@pytest.mark.slow
def test_w12_a_base_that_is_moved_into_the_repository_while_the_hub_runs_is_excluded_from_git(
    pen: Pen, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    write_role(pen, "worker", list(SLEEP), "worktree: {enabled: true, branch_from: main}")
    words = ["run", "--role", "worker", "--detach", "--name"]
    assert pen.cli(*words, "old", cwd=repo).code == 0
    file = pen.root / "config.yaml"
    file.write_text(f"{file.read_text()}worktrees: {{base: '{repo / 'trees'}'}}\n")
    wait_until(lambda: "trees" in str(config(pen)["worktrees"]))
    assert pen.cli(*words, "new", cwd=repo).code == 0
    assert (repo / "trees" / "new").is_dir()
    assert git(repo, "status", "--porcelain") == ""
