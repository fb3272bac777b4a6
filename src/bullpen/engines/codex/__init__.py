"""Codex as an agent: its flags, files, hooks and lines of output are known here alone.

Called through the table of `engines`. Must not start it, nor know another engine. Its logins are in
`home/credentials`, the names of its log entries in `hub/usage/metrics`.
"""

from bullpen.engines.base import Engine
from bullpen.engines.codex.converse import CodexConverse
from bullpen.engines.codex.observe import CodexObserve
from bullpen.engines.codex.prepare import CodexPrepare


class Codex(CodexPrepare, CodexObserve, CodexConverse):
    """The engine. It writes no state file."""

    name = "codex"
    lacks: tuple[str, ...] = (
        "its state before the first prompt: until then messages wait, also after a restart",
        "the end of a turn that failed: it shows as working until the next prompt",
        "its own dialog while an approval waits in the inbox",
        "a question that it asks in its plan mode: answer it in its terminal",
        "rules for tools other than shell commands",
        "tokens of a continued run apart from those before it, and any before its end",
        "a limit of turns or USD for a task",
        "the end of a task whose API cannot be reached: it waits for the network until its time is"
        " over",
        "the cost of what it uses, and so budgets in USD: tokens and requests are counted",
        "a refusal of its tools when a budget is used up: its turn is interrupted",
        "messages as they are: control characters arrive as pictures of them (\u241b), line ends"
        " as line feeds, the last one without blanks at its end",
        "the hub from inside its own sandbox (`bullpen` in a command)",
    )


CODEX: Engine = Codex()
