"""Which child of another machine a name means."""

from typing import Any

from bullpen.model.fleet_child import RemoteChild
from bullpen.model.rights import Rights
from tests.hub.parts import Parts, in_parts


def asked(id: str, **fields: Any) -> RemoteChild:
    given = {"parent": "lead", "born": "then", "host": "h2", "name": "lead.csv", "at": 1.0}
    given |= {"branch": "lead.csv", "repo": "/repo/.git", "base_dir": "/trees", "base": "b"}
    return RemoteChild(**{**given, "id": id, "role": "coder", "ceiling": Rights(), **fields})


def test_l4_asking_for_a_name_that_is_taken_hides_no_child() -> None:
    async def main(parts: Parts) -> None:
        rows = parts.hub.child_rows
        started, earlier = asked("1", state="started"), asked("0", state="started", at=0.5)
        refused = asked("2", state="refused", parent="other", at=2.0)
        sent = asked("3", state="sent", parent="other", at=3.0)
        rows.remote = {each.id: each for each in (earlier, started, refused, sent)}
        assert rows.find_named("h2/lead.csv") == started
        rows.remote = {each.id: each for each in (refused, sent)}
        assert rows.find_named("h2/lead.csv") == sent
        rows.remote = {refused.id: refused}
        assert rows.find_named("h2/lead.csv") is None

    in_parts(main)
