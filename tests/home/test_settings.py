from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from bullpen.home.settings import Discovery, Settings, find_unused, load_settings
from bullpen.home.yamlfile import parse, read
from bullpen.worktrees import Repository, Site
from tests.setting_keys import data_keys, model_keys, uncommented

STARTER = files("bullpen") / "home" / "starter" / "config.yaml"


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_settings(path)


def test_h10_every_setting_is_documented_and_nothing_else_is() -> None:
    data = parse(Path("config.yaml"), uncommented(STARTER.read_text())).data
    assert sorted(data_keys(data)) == sorted(model_keys(Settings))


def test_h10_the_documented_values_are_the_defaults(tmp_path: Path) -> None:
    text = STARTER.read_text()
    assert load(tmp_path, uncommented(text)) == Settings()
    assert load(tmp_path, text) == Settings()


def test_h10_no_file_or_an_empty_one_means_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "gone.yaml") == Settings()
    assert load(tmp_path, "") == Settings()


def test_h10_defaults() -> None:
    settings = Settings()
    assert settings.port is None
    assert settings.worktrees.branch_prefix == "swarm"
    assert (settings.worktrees.pool, settings.worktrees.max_depth) == (0, 2)
    assert settings.worktrees.auto_cleanup_age is None
    assert settings.discovery.ports == range(9000, 9200)
    assert (settings.history_limit, settings.ask_timeout) == (100, None)
    assert (settings.detach_key, settings.stop_grace) == ("ctrl-\\", timedelta(seconds=10))
    assert settings.log_level == "info"


def test_h10_every_setting_can_be_set(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
port: 9000
worktrees: {base: /w, branch_prefix: team/x, pool: 2, max_depth: 3, auto_cleanup_age: 7d}
landing: {verify: make test, strategy: squash, protected: [main], timeout: 5m}
discovery: {method: mdns, port_range: 8000-8001}
history_limit: 5
ask_timeout: 1h
detach_key: ctrl-q
stop_grace: 0s
log_level: debug
""",
    )
    assert settings.worktrees.auto_cleanup_age == timedelta(days=7)
    assert settings.discovery.ports == range(8000, 8002)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot: 1", "prot  unknown key · did you mean port?"),
        ("port: 70000", "port  70000 is too large · at most 65535"),
        ("port: '9000'", 'port  "9000" is no whole number'),
        ("worktrees: {pools: 1}", "worktrees.pools  unknown key · did you mean pool?"),
        ("worktrees: {pool: -1}", "at least 0"),
        ("worktrees: {auto_cleanup_age: 7}", "7 is no duration"),
        ("worktrees: {branch_prefix: 'a b'}", "no name that git allows"),
        ("discovery: {method: bonjour}", "one of scan, mdns"),
        ("discovery: {port_range: 9000}", "9000 is no text"),
        ("discovery: {port_range: 9199-9000}", "no range of ports"),
        ("discovery: {port_range: 1-70000}", "no range of ports"),
        ("landing: {strategy: fast}", "one of merge, squash, rebase"),
        ("landing: {protect: [main]}", "landing.protect  unknown key · did you mean protected?"),
        ("landing: {timeout: 0s}", "landing.timeout"),
        ("history_limit: 0", "at least 1"),
        ("fleet: {url: 'nats://h', name: H1}", "fleet.name"),
        ("fleet: {url: 'nats://h'}", "fleet.name  is missing"),
        ("fleet: {url: 'http://h', name: h1}", "fleet.url"),
        ("fleet: {url: 'nats://h,http://i', name: h1}", "fleet.url"),
        ("fleet: {url: 'nats://h,', name: h1}", "fleet.url"),
        ("fleet: {url: 'nats://me:secret@h', name: h1}", "does not belong here"),
        ("fleet: {url: 'nats://h', name: h1, token: t}", "fleet.token  unknown key"),
        ("fleet: {labels: {gpu: 1}}", "fleet.labels.gpu"),
        ("detach_key: F1", '"F1" is not allowed · ctrl- and a letter'),
        ("log_level: warning", "did you mean warn?"),
        ("- 1", "a list is no block"),
    ],
)
def test_h10_settings_are_checked_like_roles(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BullpenError) as caught:
        load(tmp_path, text)
    assert "config.yaml has 1 error" in caught.value.message
    assert f"{tmp_path / 'config.yaml'}:1" in caught.value.message
    assert says in caught.value.message


EARLIER = """
discovery: {method: mdns, refresh_interval: 1m}
notifications: {to: ["ntfy://hunter2"], on: [finished]}
"""


def test_h10_what_an_earlier_version_offered_still_loads_and_is_named(tmp_path: Path) -> None:
    assert load(tmp_path, EARLIER) == Settings(discovery=Discovery(method="mdns"))
    file = tmp_path / "config.yaml"
    assert find_unused(read(file)) == ["notifications", "discovery.refresh_interval"]
    file.write_text("discovery: 3\n")
    assert find_unused(read(file)) == []


def test_h10_the_worktree_library_has_the_same_defaults(tmp_path: Path) -> None:
    """`bullpen worktree` does not read settings from a file that sets nothing."""
    ours, theirs = Settings().worktrees, Site(Repository(tmp_path, tmp_path, None), tmp_path)
    for name in ("branch_prefix", "pool", "max_depth"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.base is None
