"""How an agent's program is started: the engine's `Start`, and the request to the factory.

Called by `plan` and `start` (terminals), `tasks/run_plan` and `messages/heartbeat`. Nobody else
makes a `Start` or a request. Reads the disk. Writes only what a sandbox has to find.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import bullpen
from bullpen.engines import Start, get_engine
from bullpen.engines.base import Prepare
from bullpen.engines.trusted import top_of
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.hot.hook_line import ask_line, hook_line, mcp_line
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.context import HubContext
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.sandbox.agent_sockets import DIRECTORY, SOCKET
from bullpen.hub.sandbox.policy import SandboxPlan
from bullpen.model.agent import Agent
from bullpen.model.rights import limited
from bullpen.model.role import Role


def make_start(
    context: HubContext,
    agent: Agent,
    role: Role | None,
    env: Mapping[str, str],
    *,
    is_sandboxed: bool,
) -> Start:
    """What every start of that agent has in common. The caller adds what is its own."""
    home = context.home
    package = str(Path(bullpen.__file__).parents[1])
    own_socket = home.session(agent.name) / DIRECTORY / SOCKET
    return Start(
        role=role,
        words=(),
        agent=agent.name,
        cwd=agent.cwd,
        top=agent.worktree.path if agent.worktree else str(top_of(home, Path(agent.cwd))),
        session=home.session(agent.name),
        home=home.root,
        person=context.person,
        env=env,
        url=f"http://127.0.0.1:{context.port}",
        hook=tuple(hook_line(sys.executable, package, agent.name)),
        ask=tuple(ask_line(sys.executable, package, agent.name)),
        relay=tuple(mcp_line(sys.executable, package, str(own_socket))),
        socket=_message_socket(home, agent.name, is_sandboxed=is_sandboxed),
        is_trusted=agent.is_trusted,
        is_sandboxed=is_sandboxed,
    )


def check_login(context: HubContext, agent: Agent, role: Role, env: Mapping[str, str]) -> None:
    """Refuses an agent whose program could not log in. Reads credentials."""
    keys = credentials.engine_variables(context.home, agent.engine)
    every = {**env, **keys, **role.env}
    start = make_start(context, agent, role, every, is_sandboxed=agent.is_sandboxed)
    get_engine(agent.engine).check_login(start)


def resolve_conversation(engine: Prepare, start: Start, conversation: str) -> Start:
    """The start with that conversation, if the engine has it: else a new one begins. Reads the
    engine's transcripts."""
    start = replace(start, conversation=conversation)
    if conversation and not engine.has_conversation(start):
        return replace(start, conversation="")
    return start


def refuse_lost(start: Start, conversation: str, hint: str) -> None:
    """For who asked to go on with that conversation: a new one in its place would know nothing."""
    if conversation and not start.conversation:
        raise BullpenError(
            f"nothing is left of the conversation of {start.agent}: its transcript is gone",
            hint=hint,
            kind=Kind.NOT_FOUND,
        )


def make_request(
    start: Start,
    launch_env: LaunchEnv,
    argv: tuple[str, ...],
    sandbox_plan: SandboxPlan | None,
    *,
    is_terminal: bool,
) -> dict[str, Any]:
    """What the factory is asked for, all but the socket and the tag. Blocks; never returns a
    program without its sandbox."""
    env: Mapping[str, str] = launch_env.whole
    if sandbox_plan is not None:
        wrapped = sandbox_policy.wrap_command(sandbox_plan, argv, env)
        argv, env = wrapped.argv, wrapped.env
    return {
        "name": start.agent,
        "session": str(start.session if is_terminal else start.run),
        "argv": list(argv),
        "env": dict(env),
        "cwd": start.cwd,
        "mode": "pty" if is_terminal else "pipe",
        "rows": launch_env.rows,
        "cols": launch_env.cols,
        "umask": launch_env.umask,
    }


def plan_check(context: HubContext, agent: Agent, env: Mapping[str, str]) -> SandboxPlan:
    """The agent's sandbox, for a program that checks something for the agent, on pipes."""
    role = load_changed_role(context.home, agent.role, agent.pod, agent.overrides)
    role = limited(role, agent.ceiling)
    start = make_start(context, agent, role, env, is_sandboxed=True)
    return sandbox_policy.plan_for_agent(
        context, agent, get_engine(agent.engine), start, is_terminal=False
    )


def _message_socket(home: Home, name: str, *, is_sandboxed: bool) -> Path:
    """Where its program listens for messages. A sandbox sees only the agent's own sockets."""
    if not is_sandboxed:
        return home.message_socket(name)
    return home.session(name) / DIRECTORY / "message.sock"
