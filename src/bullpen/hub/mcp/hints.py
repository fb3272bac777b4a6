"""What an agent can do about an error. Pure. Called by `server` and `landing_tools`.

Errors come from code that serves people, too, and their hints name commands. An agent has tools:
where one does it, that is named; what is left to a person says so.
"""

import re

# What a person would type or do, and what an agent does instead.
INSTEAD = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"bullpen list( .*)?", "list_agents shows who there is"),
        (r"bullpen role list", "list_agents shows who has which role"),
        (r"bullpen send (\S+) .*", r"send_message writes to \1"),
        (r"bullpen (?:attach|explain|logs) (\S+)( .*)?", r"agent_status says what \1 is doing"),
        (r"bullpen task show (\S+)|bullpen history", "task_status says how far it is"),
        (r"bullpen land \S+ tries it again", "call merge_child again"),
        (r"(.*\b)land again(.*)", r"\1call merge_child again\2"),
        (r"land it with --strategy (.*)", r"call merge_child with strategy \1"),
    )
)


def hint_for_agent(hint: str) -> str:
    """The same hint, without commands that are a tool for an agent."""
    return " · ".join(_reworded(part) for part in hint.split(" · ") if part)


def _reworded(part: str) -> str:
    for pattern, words in INSTEAD:
        match = pattern.fullmatch(part)
        if match:
            return match.expand(words)
    return re.sub(r"\bbullpen (?=[a-z])", "a person can run: bullpen ", part, count=1)
