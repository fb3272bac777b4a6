"""Gemini CLI as an agent: its flags, files, hooks and lines of output are known here alone.

Called through the table of `engines`. Must not start it, nor know another engine. Its logins are in
`home/credentials`, the names of its metrics in `hub/usage/metrics`.
"""

from bullpen.engines.base import Engine
from bullpen.engines.gemini.converse import GeminiConverse
from bullpen.engines.gemini.observe import GeminiObserve
from bullpen.engines.gemini.prepare import GeminiPrepare


class Gemini(GeminiPrepare, GeminiObserve, GeminiConverse):
    """The engine. It writes no state file."""

    name = "gemini"
    lacks: tuple[str, ...] = (
        "permissions and questions answered from the inbox: only its own dialog can",
        "a refusal in its dialog: it shows as blocked until the next prompt",
        "that a turn failed: it shows as idle, as after an interrupt",
        "rules with a pattern for tools other than the shell",
        "the cost of what it uses, and so budgets in USD: tokens and requests are counted, those"
        " from its cache also as input",
        "a refusal of its tools when a budget is used up: its turn is interrupted",
        "a limit of turns or USD for a task, and its tokens before its end",
        "messages as they are: an @ arrives as \\@ (it would read that file), control characters"
        " as pictures of them (\u241b), line ends as line feeds, the last one without blanks at its"
        " end; it drops characters without width; between tools < and > arrive as &lt; and &gt;",
    )


GEMINI: Engine = Gemini()
