"""Launches that are taken back when a member cannot be ended, in the parts of a hub."""

import json
import os

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents import intent as launch_intent
from bullpen.hub.agents.intent import Intent, MemberStart
from bullpen.model.launch import PodLaunch
from tests.hub.parts import Parts, in_parts
from tests.hub.stand_ins import locked

pytestmark = pytest.mark.slow


def test_p5_a_launch_has_failed_only_when_all_its_members_have_ended() -> None:
    """Until then it is on record as unfinished, and the next hub takes the rest back."""

    async def story(parts: Parts) -> None:
        parts.role("here", "/bin/cat")
        parts.role("missing", "/no/such/program")
        members = [{"name": "ann", "role": "here"}, {"name": "eve", "role": "missing"}]
        template = {"pod_name": "pair", "agents": members}
        (parts.home.pod_templates / "pair.yaml").write_text(json.dumps(template))
        stop = parts.hub.stopper.stop

        async def refuse(*_: object) -> None:
            raise BullpenError("the holder of ann does not answer", kind=Kind.UNAVAILABLE)

        parts.hub.stopper.stop = refuse  # type: ignore[method-assign,assignment]
        request = PodLaunch(template="pair", cwd="/", env={"PATH": os.defpath})
        steps = [step async for step in (await parts.hub.pods.launch(request)).follow()]
        assert "left: ann: the holder of ann does not answer" in steps[-1]["error"]["message"]
        assert await parts.events("pod.failed") == []
        parts.hub.stopper.stop = stop  # type: ignore[method-assign]
        await parts.hub.pods._undo.recover()
        (failed,) = await parts.events("pod.failed")
        assert failed.data["killed"] is True
        assert list(parts.registry) == []

    in_parts(story, factory=True)


def test_p5_a_launch_that_is_refused_leaves_its_names_to_others() -> None:
    async def story(parts: Parts) -> None:
        parts.role("here", "/bin/cat")
        members = [{"name": "ann", "role": "here"}, {"name": "eve", "role": "nobody"}]
        template = {"pod_name": "pair", "agents": members}
        (parts.home.pod_templates / "pair.yaml").write_text(json.dumps(template))
        with pytest.raises(BullpenError, match="nobody"):
            await parts.hub.pods.launch(PodLaunch(template="pair", cwd="/", env={}))
        assert [name for name in ("ann", "eve") if parts.registry.is_taken(name)] == []

    in_parts(story)


def test_i2_children_have_failed_to_start_only_when_all_of_them_have_ended() -> None:
    async def story(parts: Parts) -> None:
        ann = parts.agent("ann")
        intent = Intent(
            id="1" * 32,
            pod="",
            noun="spawn",
            parent="lead",
            members=(MemberStart(name="ann", run=ann.agent.run),),
        )
        await parts.store.append(launch_intent.launching(intent))
        with locked(parts.home.session("ann")):  # its holder lives, and does not answer
            error = await parts.hub.spawner._take_back(intent, BullpenError("it failed"))
        assert "left: ann: the holder of ann does not answer" in error.message
        assert await parts.events("spawn.failed") == []
        await parts.hub.pods._undo.recover()
        assert len(await parts.events("spawn.failed")) == 1

    in_parts(story)
