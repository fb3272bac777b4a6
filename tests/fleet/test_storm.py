"""L6: everything dies once: servers, hubs and a machine, while cables are cut."""

import pytest

from tests.fleet.storm import FEW, made_storm

TASKS, MESSAGES = 1000, 1000


@pytest.mark.slow
def test_l6_a_few_tasks_and_messages_end_and_arrive_once_whatever_dies() -> None:
    """Three machines on cables of a test's own, which needs no rights."""
    with made_storm(("h1", "h2", "h3"), 2, has_networks=False) as storm:
        outcome = storm.run(30, 30, FEW)
    assert (outcome.ended_once, outcome.arrived_once) == (outcome.tasks, outcome.messages), outcome
    assert outcome.tasks >= 30 and outcome.messages >= 30, outcome
    assert outcome.begun_again >= 1, outcome  # what the killed machine had


@pytest.mark.storm
def test_l6_each_task_ends_once_and_each_message_arrives_once_whatever_dies() -> None:
    with made_storm() as storm:
        outcome = storm.run(TASKS, MESSAGES)
    assert (outcome.ended_once, outcome.arrived_once) == (outcome.tasks, outcome.messages), outcome
    assert outcome.tasks >= TASKS and outcome.messages >= MESSAGES, outcome
    assert outcome.begun_again >= 2, outcome  # what the killed machine had, and that cut off
