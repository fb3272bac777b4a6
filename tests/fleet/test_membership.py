"""`fleet join` replaces the key and the settings of before together, and not before its time."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet import membership
from bullpen.fleet.credential import Credential, issue, read_credential, read_own
from bullpen.fleet.nkeys import make_seed
from bullpen.home.paths import Home
from bullpen.home.settings import Fleet, load_settings
from tests.fleet.machines import Machines, made_machines
from tests.waiting import wait_until

AUTHORITY = make_seed()
OLD = Fleet(url="nats://old:4222", name="h1")
STEPS = 3  # the new key, the settings, the removal of the old key


def key(host: str, authority: str = AUTHORITY) -> Credential:
    return issue(authority, host, make_seed())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.credentials.mkdir()
    home.config_file.write_text("port: 9100\n")
    return home


def settings(home: Home) -> Fleet:
    return load_settings(home.config_file).fleet


def join(home: Home, wanted: Fleet, credential: Credential) -> None:
    after = membership.replace(home, wanted, credential, settings(home))
    membership.drop_old_key(home, after)


def killed_at(step: int, moment: str, act: Callable[[], None]) -> None:
    """`act` in a process that is killed before or after its n-th change of a name."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def change(*words: Any, **options: Any) -> Any:
                left[0] -= 1
                if not left[0] and moment == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                result = call(*words, **options)
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return change

        os.replace, os.unlink = dying(os.replace), dying(os.unlink)
        act()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it has fewer steps"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
@pytest.mark.parametrize("name", ["h1", "h2"])
def test_l5_a_join_that_is_killed_leaves_the_old_key_or_the_new_one_never_half_of_each(
    home: Home, name: str, step: int, moment: str
) -> None:
    old, new = key("h1"), key(name)
    join(home, OLD, old)
    wanted = Fleet(url="nats://new:4222", name=name, labels={"gpu": "yes"})
    killed_at(step, moment, lambda: join(home, wanted, new))
    after = settings(home)
    is_new = after.url == wanted.url
    assert read_own(home.root, after) == (new if is_new else old)
    assert is_new == (step > 2 or (step, moment) == (2, "after"))
    # The next one has its way, and one key is left.
    join(home, wanted, new)
    assert read_own(home.root, settings(home)) == new
    assert settings(home).model_copy(update={"creds": OLD.creds}) == wanted
    keys = [path for path in home.credentials.iterdir() if path.suffix == ".json"]
    assert len(keys) == 1
    membership.drop_key(home, settings(home))
    assert not keys[0].exists()


def test_l5_the_same_key_again_stays_where_it_is(home: Home) -> None:
    old = key("h1")
    join(home, OLD, old)
    before = home.config_file.read_text()
    join(home, OLD, old)
    assert home.config_file.read_text() == before
    assert read_credential(home.root / OLD.creds) == old


def test_l5_a_machine_knows_whether_it_is_that_host_already(home: Home) -> None:
    old = key("h1")
    assert not membership.is_same_host(home, settings(home), old)
    join(home, OLD, old)
    assert membership.is_same_host(home, settings(home), key("h1"))  # another key of its own
    assert not membership.is_same_host(home, settings(home), key("h2"))
    assert not membership.is_same_host(home, settings(home), key("h1", make_seed()))


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", "h3", joined=False) as made:
        made.join("h1")
        made.join("h2")
        yield made


def wrong_key(machines: Machines) -> tuple[Path, str]:
    server = (machines.directory / "server.pem").read_text()
    file = machines.directory / "wrong.json"
    file.write_text(issue(make_seed(), "h3", make_seed(), server).to_text())
    file.chmod(0o600)
    return file, machines.url


def away(machines: Machines) -> tuple[Path, str]:
    return machines.directory / "h3.json", "nats://127.0.0.1:1"


def in_use(machines: Machines) -> tuple[Path, str]:
    return machines.directory / "h2.json", machines.url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (wrong_key, "does not let h3 in"),
        (away, "is not reached"),
        (in_use, "another machine uses this key of h2"),
    ],
)
def test_l5_a_join_that_fails_leaves_the_machine_where_it_is(
    machines: Machines,
    attempt: Callable[[Machines], tuple[Path, str]],
    why: str,
) -> None:
    pen = machines.hosts["h1"]
    files = (pen.root / "config.yaml", pen.root / "credentials" / "fleet.json")
    before = ([file.read_bytes() for file in files], machines.shown("h1")["since"])
    file, url = attempt(machines)
    ran = pen.cli("fleet", "join", file, "--url", url)
    assert ran.code != 0 and why in ran.err, ran
    shown = machines.shown("h1")
    assert ([file.read_bytes() for file in files], shown["since"]) == before
    assert (shown["link"], shown["name"]) == ("connected", "h1")


@pytest.mark.slow
def test_l5_a_machine_goes_over_to_another_name_in_one_step(machines: Machines) -> None:
    shown = machines.join("h1", "--label", "gpu=no") and machines.shown("h1")
    assert (shown["link"], shown["name"]) == ("connected", "h1")
    file = machines.directory / "h1.json"
    ran = machines.hosts["h1"].cli("fleet", "join", file, "--url", machines.url)
    assert ran.code == 0 and "labels as before: gpu=no" in ran.out, ran
    assert settings(machines.hosts["h1"].home).labels == {"gpu": "no"}
    machines.hosts["h3"] = machines.hosts["h1"]
    machines.join("h3")
    shown = machines.shown("h3")
    assert (shown["link"], shown["name"]) == ("connected", "h3")
    assert settings(machines.hosts["h3"].home).labels == {}  # they were of another one
    keys = sorted(path.name for path in (machines.hosts["h3"].root / "credentials").glob("*.json"))
    assert len(keys) == 1
    with pytest.raises(BullpenError):
        read_credential(machines.hosts["h3"].root / "credentials" / "fleet.json")
    # Without the server nobody hears that it leaves, and that is said.
    machines.kill_server()
    wait_until(lambda: machines.shown("h3")["link"] == "away")
    assert "[Errno" not in machines.shown("h3")["why"]
    ran = machines.hosts["h3"].cli("fleet", "leave")
    assert ran.code == 0 and "others show it as unreachable" in ran.out
    assert not list((machines.hosts["h3"].root / "credentials").glob("*.json"))
    machines.start_server()
    wait_until(lambda: "h2" in machines.reachable("h2"))
    machines.join("h1")


@pytest.mark.slow
def test_l5_a_mistake_in_the_block_is_said_where_one_looks(machines: Machines) -> None:
    pen = machines.hosts["h1"]
    config = pen.root / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("  name:", "  nmae:"))
    wait_until(lambda: "config.yaml has 1 error" in pen.cli("fleet", "status").out)
    assert "h1 is connected" in pen.cli("fleet", "status").out
    config.write_text(text)
    wait_until(lambda: "config.yaml" not in pen.cli("fleet", "status").out)
