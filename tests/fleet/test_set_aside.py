"""An agent that could not begin a task of the fleet gets none for a while."""

from bullpen.hub.fleet_tasks.set_aside import FIRST_SECONDS, LONGEST_SECONDS, SetAside


def test_l3_each_time_it_is_set_aside_for_twice_as_long_up_to_a_limit() -> None:
    now = 100.0
    agents = SetAside(lambda: now)
    seconds = FIRST_SECONDS
    for _ in range(10):
        agents.add("tim")
        assert "tim" in agents and "amy" not in agents
        now += seconds - 0.1
        assert "tim" in agents
        now += 0.2
        assert "tim" not in agents
        seconds = min(2 * seconds, LONGEST_SECONDS)
    agents.forget("tim")
    agents.add("tim")
    now += FIRST_SECONDS + 0.1
    assert "tim" not in agents
