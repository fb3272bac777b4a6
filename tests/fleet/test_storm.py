"""L6: five machines, three servers, twenty agents, and everything dies once."""

import pytest

from tests.fleet.storm import made_storm

pytestmark = pytest.mark.storm

TASKS, MESSAGES = 1000, 1000


def test_l6_each_task_ends_once_and_each_message_arrives_once_whatever_dies() -> None:
    with made_storm() as storm:
        outcome = storm.run(TASKS, MESSAGES)
    assert (outcome.ended_once, outcome.arrived_once) == (outcome.tasks, outcome.messages), outcome
    assert outcome.tasks >= TASKS and outcome.messages >= MESSAGES, outcome
    assert outcome.begun_again >= 2, outcome  # what the killed machine had, and that cut off
