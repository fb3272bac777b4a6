"""L4: on which machine a child starts, and what is said where there is none. Pure."""

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.fleet_children.spawn import choose_host
from bullpen.model.fleet import FleetShown, Host, HostAgent, HostState


def host(name: str, *, reachable: bool = True, running: int = 0, **fields: object) -> Host:
    agents = tuple(
        HostAgent(name=f"a{number}", state="idle", words="idle", since=0.0, running=True)
        for number in range(running)
    )
    given = {"name": name, "version": "1", "at": 0.0, "takes_children": True, **fields}
    return Host(
        state=HostState.model_validate({**given, "agents": agents}),
        reachable=reachable,
        last_heard=0,
    )


FLEET = FleetShown(
    link="connected",
    name="here",
    hosts=(
        host("here", labels={"os": "linux"}),
        host("busy", running=3, labels={"gpu": "yes", "os": "linux"}),
        host("calm", running=1, labels={"gpu": "yes", "os": "linux"}),
        host("away", reachable=False, labels={"gpu": "yes", "tpu": "yes"}),
        host("old", takes_children=False, labels={"gpu": "yes", "vga": "yes"}),
    ),
)
CHOSEN = {
    "busy": "busy",
    "here": "here",
    "gpu=yes": "calm",
    "gpu=yes,os=linux": "calm",
    "gpu=yes os=linux": "calm",
    "os=linux": "here",
}
REFUSED = {
    "": "name of a machine, or labels",
    "busy,calm": "name of a machine, or labels",
    "busy gpu=yes": "name of a machine, or labels",
    "nowhere": "no machine of the fleet is called nowhere",
    "away": "away cannot be reached now",
    "old": "old is too old",
    "tpu=yes": "no machine of the fleet that can be reached has tpu=yes",
    "vga=yes": "no machine of the fleet that can be reached has vga=yes",
}


@pytest.mark.parametrize("where", CHOSEN)
def test_l4_a_name_or_labels_choose_a_machine(where: str) -> None:
    assert choose_host(FLEET, where) == CHOSEN[where]


@pytest.mark.parametrize("where", REFUSED)
def test_l4_what_chooses_no_machine_is_refused_with_the_reason(where: str) -> None:
    with pytest.raises(BullpenError, match=REFUSED[where]):
        choose_host(FLEET, where)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (FleetShown(), "in no fleet"),
        (FLEET.model_copy(update={"link": "away", "why": "no route"}), "not connected.*no route"),
    ],
)
def test_l4_without_a_fleet_nobody_is_chosen(shown: FleetShown, words: str) -> None:
    with pytest.raises(BullpenError, match=words):
        choose_host(shown, "busy")
