"""The environment of an agent: the shell's that asked for it, cleaned, and what we add. Pure."""

from collections.abc import Mapping

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
PROGRAMS = frozenset({"BULLPEN_CLAUDE_BIN", "BULLPEN_GEMINI_BIN", "BULLPEN_CODEX_BIN"})
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def agent_environment(
    shell: Mapping[str, str],
    role: Mapping[str, str],
    own: Mapping[str, str],
    ssh_agent: str,
) -> dict[str, str]:
    """The whole of it; the role's variables win over the shell's, ours over both."""
    env = {
        name: value
        for name, value in shell.items()
        if (name in PROGRAMS or not name.startswith(("BULLPEN_", "_BULLPEN_")))
        and name not in GIT_POINTERS
        and name not in TERMINAL
    }
    env["TERM"] = "xterm-256color"
    if not any(env.get(name) for name in LOCALE):
        env["LANG"] = "C.UTF-8"
    if env.get("SSH_AUTH_SOCK"):
        env["SSH_AUTH_SOCK"] = ssh_agent
    return {**env, **role, **{name: value for name, value in own.items() if value}}
