"""Which approvals are meant: by number, by agent, all of them, or the only one.

Called by `approve`, `deny` and `answer`. Answers none itself.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.connect import connect, connect_for
from bullpen.cli.pager import is_at_terminal
from bullpen.client.approvals import list_approvals
from bullpen.client.hub import Hub
from bullpen.errors import EXIT_CODES, BullpenError, Kind
from bullpen.model.approval_text import list_lines
from bullpen.model.names import NAME

if TYPE_CHECKING:
    from bullpen.model.approval import Approval


@dataclass(frozen=True)
class ChosenApprovals:
    """Their numbers. `unseen`: those that were not named by number, and are to be shown before
    they are allowed."""

    ids: tuple[int, ...]
    unseen: "tuple[Approval, ...]" = ()


def hub_of(words: Sequence[str]) -> tuple[Hub, list[str]]:
    """The hub that these wait at (`HOST/ID`, `HOST/AGENT`: that machine's), and the words there."""
    given = [connect_for(word) for word in words]
    if len({hub.host for hub, _ in given}) > 1:
        raise BullpenError(
            f"{' and '.join(words)} are on different machines", hint="name those of one at a time"
        )
    return (given[0][0] if given else connect()), [word for _, word in given]


def choose(hub: Hub, words: Sequence[str], everything: bool, verb: str) -> ChosenApprovals:
    """By numbers or agents' names; without any, at a terminal, the only one that waits."""
    if words and everything:
        raise BullpenError("which ones?", hint="numbers, agents or --all, one of them")
    if words and not any(map(_is_name, words)):
        return ChosenApprovals(tuple(dict.fromkeys(map(number, words))))
    waiting = hub.do(list_approvals().unchecked()).approvals
    if not waiting:
        at = f" at {hub.host}" if hub.host else ""
        hint = "bullpen list --fleet" if hub.host else "bullpen list"
        raise BullpenError(f"nothing waits for you{at}", hint=hint, kind=Kind.NOT_FOUND)
    if everything:
        return _unseen(waiting)
    if words:
        return _named(hub, waiting, words)
    if not is_at_terminal():
        raise _unnamed(waiting, verb)
    return _unseen(waiting) if len(waiting) == 1 else _choose_at_terminal(hub, waiting)


def choose_question(hub: Hub, word: str) -> int:
    """The number of the question that is meant: by number, or the only one of an agent."""
    if not _is_name(word):
        return number(word)
    waiting = hub.do(list_approvals().unchecked()).approvals
    questions = [one.id for one in waiting if one.agent == word and one.questions]
    if len(questions) != 1:
        much = (
            f"asks {len(questions)} things: which one?"
            if questions
            else "asks nothing that waits here"
        )
        raise BullpenError(
            f"{hub.named(word)} {much}",
            hint=f"{list_command(hub)} · in its terminal: bullpen attach {hub.named(word)}",
            kind=Kind.CONFLICT if questions else Kind.NOT_FOUND,
        )
    return questions[0]


def list_command(hub: Hub) -> str:
    """The command that lists what waits there."""
    return f"bullpen approvals --host {hub.host}" if hub.host else "bullpen approvals"


def number(text: str) -> int:
    """`7` or `#7`."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) < 16):
        raise BullpenError(f"no number of an approval: {text}", hint="bullpen approvals")
    return int(digits)


def answer_each(
    ids: Sequence[int], answer: "Callable[[int], Approval]", as_json: bool
) -> "list[Approval]":
    """Answer one after the other; what becomes of each is said in that order."""
    answered, failures = [], []
    for id in ids:
        try:
            answered.append(answer(id))
        except BullpenError as error:
            if not as_json:
                output.write_error(error.message, error.hint)
            failures.append(error)
    if as_json and answered:
        output.write_json(answered[0] if len(ids) == 1 else {"approvals": answered})
    if as_json and failures:
        for other in failures[1:]:
            output.write_error(other.message, other.hint)
        raise failures[0]
    if failures:
        raise click.exceptions.Exit(EXIT_CODES[failures[0].kind])
    return answered


def _is_name(word: str) -> bool:
    return NAME.fullmatch(word) is not None and not word.isdecimal()


def _unseen(approvals: "Sequence[Approval]") -> ChosenApprovals:
    return ChosenApprovals(tuple(one.id for one in approvals), tuple(approvals))


def _named(hub: Hub, waiting: "Sequence[Approval]", words: Sequence[str]) -> ChosenApprovals:
    approvals: dict[int, Approval | None] = {}
    for word in words:
        if not _is_name(word):
            approvals[number(word)] = None
            continue
        of_agent = {one.id: one for one in waiting if one.agent == word}
        if not of_agent:
            raise BullpenError(
                f"{hub.named(word)} waits for no answer",
                hint=list_command(hub),
                kind=Kind.NOT_FOUND,
            )
        approvals |= of_agent
    return ChosenApprovals(
        tuple(approvals), tuple(one for one in approvals.values() if one is not None)
    )


def _unnamed(waiting: "Sequence[Approval]", verb: str) -> BullpenError:
    """Nobody is there who sees which one is meant: a script answers what it names."""
    if len(waiting) > 1:
        wait = f"{len(waiting)} approvals wait: which one?"
        return BullpenError(
            wait, hint=f"bullpen approvals · bullpen {verb} ID… · bullpen {verb} --all"
        )
    only = waiting[0]
    return BullpenError(
        f"no terminal to show you #{only.id} of {only.agent}: name it",
        hint=f"bullpen approvals {only.id} · bullpen {verb} {only.id}",
    )


def _choose_at_terminal(hub: Hub, waiting: "Sequence[Approval]") -> ChosenApprovals:
    """Which of several, by a person at a terminal. An agent's name means those that were shown:
    what it asks for meanwhile nobody has seen."""
    for line in list_lines(waiting, output.terminal_columns(), time.time()):
        output.write(line)
    answer = click.prompt("Which? Numbers, agents or all", default="none", show_default=True)
    words = answer.split()
    if words == ["all"]:
        return ChosenApprovals(tuple(one.id for one in waiting))
    if words in ([], ["none"]):
        raise click.Abort
    return ChosenApprovals(_named(hub, waiting, words).ids)
