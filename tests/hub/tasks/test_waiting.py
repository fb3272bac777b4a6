"""Tasks in line: who takes which, against the plain way of looking at all of them."""

from collections.abc import Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from bullpen.hub.tasks.board import LiveTask
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.waiting import Need, WaitingTasks, choose_agent
from bullpen.model.agent import Agent
from bullpen.model.task import Task, Wish

AGENTS = {
    "amy": Agent(name="amy", run="1", kind="headless", cwd="/", command=("x",), created=""),
    "bob": Agent(
        name="bob", run="2", kind="headless", cwd="/", command=("x",), created="", role="coder"
    ),
    "cat": Agent(
        name="cat",
        run="3",
        kind="headless",
        cwd="/",
        command=("x",),
        created="",
        role="coder",
        labels={"os": "linux"},
        is_sandboxed=True,
    ),
}

tasks = st.builds(
    lambda priority, role, labels, agent, session, sandboxed: LiveTask(
        Task(
            id=f"t-{session}",
            agent=agent,
            session_id=session,
            wish=Wish(prompt="x", sandboxed=sandboxed),
            role=role,
            labels=labels,
            priority=priority,
            created=1.0,
        ),
        TaskSession(id=session, agent=agent),
    ),
    st.integers(-1, 1),
    st.sampled_from(["", "coder"]),
    st.sampled_from([{}, {"os": "linux"}]),
    st.sampled_from(["", "amy", "bob"]),
    st.sampled_from(["s1", "s2", "s3", "s4"]),
    st.sampled_from([None, "required"]),
)
free_agents = st.sets(st.sampled_from(sorted(AGENTS))).map(
    lambda names: {n: AGENTS[n] for n in names}
)


def expected(line: list[LiveTask], free: dict[str, Agent]) -> Iterator[tuple[int, str]]:
    """One after the other, each by the first who can."""
    for live in sorted(line, key=lambda each: (-each.task.priority, each.number)):
        name = choose_agent(live, free)
        if name:
            del free[name]
            for other in line:
                if other.session.id == live.session.id:
                    other.session = other.session.model_copy(update={"agent": name})
            yield live.number, name


def taken(waiting: WaitingTasks, free: dict[str, Agent]) -> Iterator[tuple[int, str]]:
    in_vain: set[Need] = set()
    while found := waiting.take(free, in_vain):
        live, name = found
        del free[name]
        waiting.claim(live.session.id, name)
        yield live.number, name


def as_asked(lives: list[LiveTask]) -> list[LiveTask]:
    """Without what they were given since: taking one says who has its conversation."""
    for live in lives:
        live.session = TaskSession(id=live.task.session_id, agent=live.task.agent)
    return lives


def line_of(*lives: LiveTask) -> WaitingTasks:
    waiting = WaitingTasks()
    for live in lives:
        waiting.put(live)
    return waiting


@given(st.lists(tasks, max_size=12), free_agents)
def test_t4_the_first_in_line_that_somebody_can_do_is_taken(
    lives: list[LiveTask], free: Mapping[str, Agent]
) -> None:
    waiting = line_of(*reversed(lives))  # put back in any order: each goes to its place
    chosen = list(taken(waiting, dict(free)))
    assert chosen == list(expected(as_asked(lives), dict(free)))
    assert len(waiting) == len(lives) - len(chosen)


@given(st.lists(tasks, max_size=12), st.sets(st.integers(0, 11)))
def test_t4_what_has_left_the_line_is_taken_by_nobody(
    lives: list[LiveTask], gone: set[int]
) -> None:
    waiting = line_of(*lives)
    for number in gone & set(range(len(lives))):
        waiting.drop(lives[number])
        waiting.drop(lives[number])
    left = [live for number, live in enumerate(lives) if number not in gone]
    assert len(waiting) == len(left)
    chosen = list(taken(waiting, dict(AGENTS)))
    assert chosen == list(expected(as_asked(left), dict(AGENTS)))
    for live in lives:
        waiting.drop(live)
    assert len(waiting) == 0


def test_a_task_for_a_sandbox_alone_waits_for_one() -> None:
    wish = Wish(prompt="x", sandboxed="required")
    task = Task(id="t-1", session_id="s", wish=wish, created=1.0)
    live = LiveTask(task, TaskSession(id="s"))
    open_agents = {name: AGENTS[name] for name in ("amy", "bob")}
    assert choose_agent(live, open_agents) == ""
    assert choose_agent(live, AGENTS) == "cat"
    assert (
        choose_agent(
            LiveTask(task.model_copy(update={"wish": Wish(prompt="x")}), live.session), AGENTS
        )
        == "amy"
    )
