"""Gives Codex in a terminal its first prompt without writing it on a command line, which every user
of the machine can read. Its command line names a file of the agent's own home.

Codex (0.166.0) takes a first prompt as an argument alone: it refuses a standard input that is no
terminal, says nothing before the first prompt, and expands no custom prompt there. But a skill that
a prompt links to is shown to the model whole, in the user's name. So the prompt is written as a
skill, and the argument is a link to that. If Codex does not know the link (an older version, odd
characters in the path), the model reads where its prompt is: it is never lost.
"""

import re
from collections.abc import Mapping

from bullpen.engines import parse
from bullpen.engines.base import Start
from bullpen.engines.codex.home import HOME
from bullpen.engines.first_prompt import TEXT, FirstPrompt
from bullpen.engines.own_home import own_directory, real_directory, remove, write_own

NAME = "first-prompt"
DIRECTORY = f"skills/{NAME}"  # in the agent's CODEX_HOME
# It shows the skill also to who makes a title of the conversation.
ABOUT = "the first prompt of this agent; who is asked for a title does nothing else"
HEADER = f"---\nname: {NAME}\ndescription: {ABOUT}\n---\n"
# It is for this one prompt: a model is not told that there is such a skill.
UNLISTED = "policy:\n  allow_implicit_invocation: false\n"
WORD = "Your first prompt is in [${name}]({file}): read that file, and do what it says."
SHOWN = re.compile(
    rf"<skill>\n<name>{NAME}</name>\n<path>[^\n]*</path>\n{re.escape(HEADER)}(.*)\n</skill>", re.S
)


def make_first_prompt(start: Start) -> FirstPrompt:
    """What stands on the command line, and the skill, which `write_skill` puts in its place."""
    if not start.prompt:
        return FirstPrompt()
    # Codex resolves the links of its home before it names a file in it.
    file = HOME.own(start).resolve() / DIRECTORY / "SKILL.md"
    word = WORD.format(name=NAME, file=file)
    return FirstPrompt(word=(word,), files={TEXT: HEADER + parse.sound(start.prompt)})


def write_skill(start: Start, files: Mapping[str, str]) -> None:
    """In place of that of an earlier start. An agent in a sandbox may have left anything there: no
    link is followed."""
    directory = HOME.own(start) / DIRECTORY
    (real_directory if start.is_sandboxed else own_directory)(directory.parent)
    remove(directory)
    if TEXT in files:
        write_own(own_directory(directory) / "SKILL.md", files[TEXT])
        write_own(own_directory(directory / "agents") / "openai.yaml", UNLISTED)


def find_prompt(text: str) -> str:
    """The prompt, as it was given, in what Codex's transcript has of it; empty: the text is another
    one. Pure."""
    shown = SHOWN.fullmatch(text)
    return shown[1] if shown else ""
