"""Claude Code's own file is changed under Claude Code's lock, whole, and no more than needed."""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines.claude import config
from bullpen.errors import BullpenError, Kind


@pytest.fixture
def own(tmp_path: Path) -> config.Config:
    directory = tmp_path / "claude"
    directory.mkdir()
    return config.Config(directory, directory / config.FILE)


def lock_of(own: config.Config, age_seconds: float) -> Path:
    lock = Path(f"{own.file}.lock")
    lock.mkdir()
    then = time.time() - age_seconds
    os.utime(lock, (then, then))
    return lock


@pytest.mark.parametrize("age_seconds", [0.0, 2.0])
def test_e2_the_lock_of_a_living_claude_is_not_taken(
    own: config.Config, monkeypatch: pytest.MonkeyPatch, age_seconds: float
) -> None:
    """It touches its lock every few seconds, and may be late by some."""
    assert config.STALE_SECONDS > 10
    monkeypatch.setattr(config, "LOCK_SECONDS", 0.05)
    lock = lock_of(own, age_seconds)
    own.file.write_text("{}")
    with pytest.raises(BullpenError, match="is locked by another Claude Code") as caught:
        config.make_ready(own, "/work", "")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert lock.is_dir()
    assert own.file.read_text() == "{}"


def test_e2_the_lock_of_a_dead_claude_does_not_stand_for_ever(own: config.Config) -> None:
    lock = lock_of(own, 60.0)
    config.make_ready(own, "/work", "")
    assert json.loads(own.file.read_text())["hasCompletedOnboarding"]
    assert not lock.exists()


def test_e2_the_file_is_changed_under_the_lock(
    own: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, held = config.ready, []

    def looking(found: dict[str, Any], cwd: str, api_key: str) -> dict[str, Any]:
        held.append(Path(f"{own.file}.lock").is_dir())
        # Ours is a lock to Claude Code, too: mkdir says so.
        with pytest.raises(FileExistsError):
            Path(f"{own.file}.lock").mkdir()
        return ready(found, cwd, api_key)

    monkeypatch.setattr(config, "ready", looking)
    config.make_ready(own, "/work", "")
    assert held == [True]
    assert not Path(f"{own.file}.lock").exists()


@pytest.mark.parametrize("text", ["{", "[]", '"text"'])
def test_e2_a_file_that_is_none_of_claudes_is_left_alone_and_unlocked(
    own: config.Config, text: str
) -> None:
    own.file.write_text(text)
    with pytest.raises(BullpenError) as caught:
        config.make_ready(own, "/work", "")
    assert caught.value.kind is Kind.CONFLICT
    assert own.file.read_text() == text
    assert sorted(p.name for p in own.root.iterdir()) == [config.FILE, "sessions"]


def test_e2_only_what_is_missing_is_written_and_privately(own: config.Config) -> None:
    key = "sk-ant-api03-" + "k" * 40
    tail = key[-config.KEY_CHARACTERS :]
    before = {
        "theme": "dark",
        "projects": {"/work": {"history": [1]}, "/other": {"hasTrustDialogAccepted": False}},
        "customApiKeyResponses": {"approved": ["a"], "rejected": ["r", tail]},
    }
    own.file.write_text(json.dumps(before))
    own.file.chmod(0o644)
    config.make_ready(own, "/work", key)
    assert json.loads(own.file.read_text()) == {
        "theme": "dark",
        "projects": {
            "/work": {
                "history": [1],
                "hasTrustDialogAccepted": True,
                "acceptedByBullpen": True,
            },
            "/other": {"hasTrustDialogAccepted": False},
        },
        "customApiKeyResponses": {"approved": ["a", tail], "rejected": ["r"]},
        "hasCompletedOnboarding": True,
        "hasSeenAutoDefaultNudge": True,
    }
    assert stat.S_IMODE(own.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.sessions.stat().st_mode) == 0o700
    inode = own.file.stat().st_ino
    config.make_ready(own, "/work", key)
    assert own.file.stat().st_ino == inode, "nothing was missing"


def test_e2_what_another_claude_wrote_over_is_written_again(own: config.Config) -> None:
    config.make_ready(own, "/work", "")
    own.file.write_text('{"hasCompletedOnboarding": true, "numStartups": 7}')
    config.keep_ready(own, "/work", "")
    found = json.loads(own.file.read_text())
    assert found["projects"]["/work"]["hasTrustDialogAccepted"] is True
    assert found["numStartups"] == 7


def test_e2_while_it_is_there_nobody_is_locked_out(own: config.Config) -> None:
    config.make_ready(own, "/work", "")
    lock_of(own, 0.0)
    before = own.file.stat().st_mtime_ns
    config.keep_ready(own, "/work", "")
    assert own.file.stat().st_mtime_ns == before
