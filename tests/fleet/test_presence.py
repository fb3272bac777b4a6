"""Hosts see each other, a dead one disappears, and without the server each goes on by itself."""

import shutil

import pytest

from bullpen.fleet import keys
from bullpen.home.settings import load_settings
from tests.fleet.machines import Machines, made_machines
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def listed(machines: Machines, host: str) -> str:
    """`bullpen list --fleet` there."""
    ran = machines.hosts[host].cli("list", "--fleet")
    assert ran.code == 0, ran
    return ran.out


@pytest.mark.storm
def test_l1_hosts_see_each_other_until_one_leaves_or_dies() -> None:
    with made_machines("h1", "h2", "h3", joined=False) as machines:
        for name in ("h1", "h2", "h3"):
            machines.join(name, "--label", "gpu=yes")
        h1, h2, h3 = (machines.hosts[name] for name in ("h1", "h2", "h3"))
        h2.run(name="amy")
        wait_until(lambda: "h2/amy" in listed(machines, "h1"))
        wait_until(lambda: machines.reachable("h1") == {"h1", "h2", "h3"})
        status = h1.cli("fleet", "status").out
        assert "h1 (this one)" in status and "gpu=yes" in status and "1 running" in status

        assert "h1 at nats://" in h1.cli("doctor").out

        # One that leaves is forgotten, and its key is removed.
        assert h3.cli("fleet", "leave").code == 0
        wait_until(
            lambda: (
                {host["state"]["name"] for host in machines.shown("h1")["hosts"]} == {"h1", "h2"}
            )
        )
        assert not (h3.root / "credentials" / "fleet.json").exists()
        assert "in no fleet" in h3.cli("fleet", "status").out

        # One that dies is no longer listed; what was last heard of it is not forgotten.
        h2.kill_hub()
        wait_until(lambda: machines.reachable("h1") == {"h1"})
        assert "h2/amy" not in listed(machines, "h1")
        assert "h2 cannot be reached · last heard: 1 running" in listed(machines, "h1")
        assert "unreachable · last heard: 1 running" in h1.cli("fleet", "status").out
        ran = h1.cli("status", "h2/amy")
        assert ran.code == 3 and "h2: no hub of that name is connected" in ran.err

        # Its agents lived on, and it comes back by itself.
        h2.start()
        wait_until(lambda: "h2/amy" in listed(machines, "h1"))


def test_l1_l4_a_machine_whose_hub_was_stopped_is_one_of_the_fleet_still() -> None:
    """Its agents go on. It is not there at once, and what is written to it waits."""
    with made_machines("h1", "h2") as machines:
        h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
        h2.run("/bin/cat", name="amy")
        wait_until(lambda: "h2/amy" in listed(machines, "h1"))
        assert h2.cli("hub", "stop").code == 0
        assert machines.reachable("h1") == {"h1"}
        assert "h2 cannot be reached · last heard: 1 running" in listed(machines, "h1")
        ran = h1.cli("send", "h2/amy", "while it was stopped")
        assert ran.code == 0 and "queued: on its way to h2" in ran.out, ran
        h2.start()
        wait_until(lambda: "while it was stopped" in h2.cli("inbox", "amy").out)


def test_l5_without_the_server_each_host_goes_on_says_so_and_comes_back() -> None:
    with made_machines("h1", "h2") as machines:
        h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
        h2.run(name="amy")
        wait_until(lambda: "h2/amy" in listed(machines, "h1"))

        machines.kill_server()
        wait_until(lambda: machines.shown("h1")["link"] == "away")
        wait_until(lambda: machines.shown("h2")["link"] == "away")
        assert "is not reached or not ready: " in h1.cli("doctor").out
        said = h1.cli("fleet", "status").out
        assert "h1 is not connected" in said and "goes on by itself" in said
        assert "h2   " in said and "unreachable · last heard: 1 running" in said
        assert "h2 cannot be reached" in listed(machines, "h1")
        ran = h1.cli("status", "h2/amy")
        assert ran.code == 3 and "the server of the fleet is away" in ran.err
        h1.run(name="bob")  # by itself
        h2.stop("amy")
        h2.run(name="cid")

        machines.start_server()
        wait_until(lambda: machines.reachable("h1") == machines.reachable("h2") == {"h1", "h2"})
        wait_until(lambda: "h1/bob" in listed(machines, "h2"))  # what happened meanwhile
        wait_until(lambda: "h2/cid" in listed(machines, "h1"))
        assert h1.cli("status", "h2/cid").code == 0

        # A server that is there and says nothing is away, too: a cut link looks like that.
        machines.stop_server()
        wait_until(lambda: machines.shown("h1")["link"] == "away")
        machines.kill_server()
        machines.start_server()
        wait_until(lambda: machines.reachable("h1") == {"h1", "h2"})


def test_l5_a_machine_that_joins_again_uses_its_new_key_and_leaves_with_it() -> None:
    with made_machines("h1", "h2", joined=False) as machines:
        h1 = machines.join("h1")
        first = machines.shown("h1")["since"]
        keys.change(machines.directory, add=[], revoke=["h1"])
        machines.key("h1")
        machines.join("h1")
        shown = machines.shown("h1")
        assert shown["link"] == "connected" and shown["since"] > first

        # The key may be elsewhere: that one is removed, and no other.
        config = h1.root / "config.yaml"
        creds = load_settings(config).fleet.creds
        mine, own = h1.root / "mine.json", h1.root / creds
        shutil.copy2(own, mine)
        config.write_text(config.read_text().replace(creds, "mine.json"))
        assert load_settings(config).fleet.creds == "mine.json"
        assert h1.cli("fleet", "leave").code == 0
        assert (mine.exists(), own.exists()) == (False, True)
