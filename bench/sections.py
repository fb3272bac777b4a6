"""The table of sections. A section is a module here with `rows(short) -> Iterator[Row]`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from bench.table import Row


@dataclass(frozen=True)
class Section:
    """What is measured together: its rows share a run, and are asked for one by one."""

    name: str
    numbers: tuple[str, ...]
    rows: Callable[[bool], Iterator[Row]]
    only_with: str = ""  # the option without which it is left out


def _load(name: str, short: bool) -> Iterator[Row]:
    """Imported when its turn comes: what is missing here then stops one section."""
    found: Iterator[Row] = import_module(f"bench.{name}").rows(short)
    return found


def _section(name: str, *numbers: str, only_with: str = "") -> Section:
    return Section(name, numbers, partial(_load, name), only_with)


SECTIONS = (
    _section("hot_verbs", "1a", "1b", "1d"),
    _section("other_verbs", "1c"),
    _section("memory", "2a"),
    _section("spawn", "2b"),
    _section("output", "3a"),
    _section("keys", "3b"),
    _section("screens", "4"),
    _section("trees", "5a", "5b"),
    _section("big_trees", "5a", "5b", only_with="full"),
    _section("storm", "5c"),
    _section("events", "6"),
    _section("store", "7"),
    _section("discovery", "8"),
    _section("sandbox", "9"),
    _section("messages", "10", "11", "12"),
    _section("idle", "13"),
    _section("restart", "14"),
    _section("peers", "10", "11", "12", "13", "14", only_with="peers"),
    _section("many", "15"),
    _section("agent_tools", "16", "17", "r", "w"),
    _section("land", "18"),
    _section("fleet", "19", "20"),
    _section("page", "21"),
    _section("fleet_size", "22"),
    _section("fleet_terminal", "23"),
    _section("schedule", "24"),
    _section("hub_start", "s"),
    _section("tasks", "t"),
    _section("growth", "g"),
    _section("engine_hooks", "h"),
)


def choose(
    words: Sequence[str], options: Sequence[str] = (), sections: Sequence[Section] = SECTIONS
) -> list[Section]:
    """By number (`2` is 2a and 2b) or name, in the table's order, with the numbers that are
    wanted of each. No word: all. LookupError: there is no such thing."""
    usual = [section for section in sections if section.only_with in ("", *options)]
    if not words:
        return usual
    wanted: dict[str, set[str]] = {section.name: set() for section in sections}
    for word in words:
        named = [section for section in sections if section.name == word]
        numbered = [(section, _numbers(section, word)) for section in usual]
        found = [(section, section.numbers) for section in named] or numbered
        if not any(numbers for _, numbers in found):
            raise LookupError(word)
        for section, numbers in found:
            wanted[section.name].update(numbers)
    return [
        replace(section, numbers=tuple(sorted(wanted[section.name])))
        for section in sections
        if wanted[section.name]
    ]


def _numbers(section: Section, word: str) -> tuple[str, ...]:
    return tuple(number for number in section.numbers if word in (number, number.rstrip("abcd")))
