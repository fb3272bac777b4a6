"""The environment of every agent and every task: what the shell had, and what Bullpen adds.

Called by `plan` when an agent is launched, and when a task agent is restarted; tasks and restarts
of terminals begin with the stored environment. A variable for all agents and tasks goes into
`own_variables`. The engine, the role and the task add theirs later. Pure.
"""

from collections.abc import Mapping

from bullpen.engines.versions import PROGRAMS
from bullpen.home.paths import Home
from bullpen.model.agent import Agent

# Git's pointers to a repository would send every git of the agent to the wrong one.
GIT_POINTERS = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
        "GIT_CEILING_DIRECTORIES",
        "GIT_QUARANTINE_PATH",
        "GIT_SHALLOW_FILE",
        "GIT_GRAFT_FILE",
    }
)
# Of the terminal or the multiplexer that the person sits at, not of the agent's own.
TERMINAL = frozenset(
    {"TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "TMUX", "TMUX_PANE"}
    | {"STY", "WINDOW", "COLUMNS", "LINES", "WINDOWID", "VTE_VERSION", "KITTY_WINDOW_ID"}
)
# Where the engines' programs are: what the person chose holds for restarts and children, too.
PROGRAM_VARIABLES = frozenset(needed.variable for needed in PROGRAMS.values())
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def own_variables(home: Home, agent: Agent, token: str) -> dict[str, str]:
    """What Bullpen sets for every agent and every task. With these a `bullpen` that the agent runs
    acts as that agent. Empty ones are left out. A sandbox passes on names that begin with BULLPEN_;
    another name has to be listed in `sandboxes/environment`. A terminal gets a new one at its next
    `run`, a task agent at its next start: restarts and tasks use the environment stored then."""
    return {
        "BULLPEN_DIR": str(home.root),
        "BULLPEN_ACTOR": agent.name,
        "BULLPEN_ROLE": agent.role,
        "BULLPEN_POD": agent.pod,
        "BULLPEN_SESSION_DIR": str(home.session(agent.name)),
        "BULLPEN_PARENT": agent.parent,
        "BULLPEN_TOKEN": token,
    }


def make_environment(
    shell: Mapping[str, str], home: Home, agent: Agent, token: str
) -> dict[str, str]:
    """The whole of it. Bullpen's own variables win over the shell's."""
    env = {
        name: value
        for name, value in shell.items()
        if (name in PROGRAM_VARIABLES or not name.startswith(("BULLPEN_", "_BULLPEN_")))
        and name not in GIT_POINTERS
        and name not in TERMINAL
    }
    env["TERM"] = "xterm-256color"
    if not any(env.get(name) for name in LOCALE):
        env["LANG"] = "C.UTF-8"
    if env.get("SSH_AUTH_SOCK"):
        env["SSH_AUTH_SOCK"] = str(home.sockets / "ssh-agent")
    own = own_variables(home, agent, token)
    return {**env, **{name: value for name, value in own.items() if value}}
