"""Pod templates: the names that members have in a pod."""

import pytest
from pydantic import ValidationError

from bullpen.model.pod import AgentEntry, PodTemplate, members_of

TEMPLATE = PodTemplate(
    pod_name="team",
    agents=(AgentEntry(role="coder", name="ann", prompt="Write to ben."), AgentEntry(role="ben")),
)


@pytest.mark.parametrize(
    ("pod", "pods", "names"),
    [
        ("team", {}, ["ann", "ben"]),
        ("t2", {}, ["ann", "ben"]),
        ("t2", {"ann": "t2", "ben": "t2"}, ["ann", "ben"]),
        ("t2", {"ben": ""}, ["ann", "ben"]),
        ("t2", {"ben": "team"}, ["t2.ann", "t2.ben"]),
        ("team", {"ann": "t2"}, ["team.ann", "team.ben"]),
        # Also when those of the other pod are gone: they go on under their names.
        ("t2", {"t2.ann": "t2"}, ["t2.ann", "t2.ben"]),
        ("team", {"ann": "team", "t2.ann": "t2"}, ["ann", "ben"]),
    ],
)
def test_p5_members_have_the_pods_name_in_front_if_another_pod_has_theirs(
    pod: str, pods: dict[str, str], names: list[str]
) -> None:
    assert [member.name for member in members_of(TEMPLATE, pod, pods)] == names


def test_p5_members_of_a_second_pod_are_told_how_the_others_are_called() -> None:
    ann, ben = members_of(TEMPLATE, "t2", {"ben": "team"})
    assert ann.prompt == "Write to ben.\n\nIn this pod ann is t2.ann, ben is t2.ben."
    assert ben.prompt is None


def test_p4_only_a_sequence_lands_at_its_end() -> None:
    fields = {"pod_name": "team", "agents": [{"role": "coder"}], "land": True}
    assert PodTemplate.model_validate({**fields, "workflow": "sequence"}).land
    for workflow in ({}, {"workflow": "parallel"}):
        with pytest.raises(ValidationError, match="only with workflow: sequence"):
            PodTemplate.model_validate({**fields, **workflow})
