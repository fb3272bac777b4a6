"""When a host was there last, by the clock of whoever looks. Pure."""

from bullpen.fleet.direct_get import Entry
from bullpen.fleet.presence import hosts_at
from bullpen.hub.render.fleet import agents_text, hosts_text
from bullpen.model.fleet import FleetShown, Host, HostAgent, HostState, with_last_heard

NOW = 1_000_000.0
SERVER = 5_000.0  # what the server's clock says meanwhile


def said(name: str, ago: float, *, ahead: float = 0.0, since: float = 60.0) -> Entry:
    """What a host said that long ago of an agent whose state was as old as `since` then; its clock
    goes ahead."""
    at = NOW - ago + ahead
    agent = HostAgent(name="amy", state="idle", words="idle", since=at - since, running=True)
    state = HostState(name=name, version="1", agents=(agent,), at=at)
    return Entry(state.model_dump_json().encode(), 1, SERVER - ago)


def read(live: dict[str, float], states: dict[str, Entry]) -> dict[str, Host]:
    beats = {name: Entry(b"life", 1, SERVER - ago) for name, ago in live.items()}
    return {host.state.name: host for host in hosts_at(NOW, beats, states)}


def test_l1_a_host_was_last_heard_of_at_its_last_sign_of_life_not_at_its_last_change() -> None:
    hosts = read({"own": 0.0, "h2": 1.0}, {"own": said("own", 9), "h2": said("h2", 25)})
    assert hosts["h2"].reachable and hosts["h2"].last_heard == NOW - 1
    # Its beat is gone with it. Whoever has looked before knows better than the server.
    after = read({"own": 0.0}, {"own": said("own", 9), "h2": said("h2", 25)})
    assert not after["h2"].reachable and after["h2"].last_heard == NOW - 25
    (h2, _) = with_last_heard(after.values(), hosts.values())
    assert h2.last_heard == NOW - 1 and not h2.reachable


def test_l1_the_clock_of_another_host_may_be_wrong() -> None:
    for ahead in (0.0, 7200.0, -86400.0):
        (h2,) = read({"h2": 0.0}, {"h2": said("h2", 20, ahead=ahead)}).values()
        assert h2.last_heard == NOW
        assert h2.state.at == NOW - 20 and h2.state.agents[0].since == NOW - 80


def test_l1_the_lists_say_when_a_host_was_last_heard_of() -> None:
    hosts = read({"own": 0.0}, {"own": said("own", 9), "h2": said("h2", 25)})
    before = [hosts["h2"].model_copy(update={"last_heard": NOW - 5})]
    shown = FleetShown(
        link="connected", name="own", hosts=with_last_heard(hosts.values(), before), since=NOW - 99
    )
    words = "last heard: 1 running, 5s ago"
    assert words in hosts_text(shown, NOW) and words in agents_text(shown, NOW)


def test_l1_what_makes_no_sense_is_no_host() -> None:
    states = {"h2": Entry(b"?", 1, SERVER), "h3": said("h4", 0), "h5": Entry(None, 1, SERVER)}
    assert read({}, states) == {} and read({}, {}) == {}
