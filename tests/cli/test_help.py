"""Help fits the terminal, and is whole."""

import re
from collections.abc import Iterator

import click
import pytest

from bullpen.cli.first_word import FirstWord
from bullpen.cli.main import cli, run
from bullpen.text import width


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that has help of its own."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from paths(inner, (*path, name))


def help_of(
    path: tuple[str, ...],
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*path, "--help"]) == 0
    return capsys.readouterr().out


def words(text: str) -> list[str]:
    """Choices may go on in the next line."""
    return re.sub(r"\|\s+", "|", text).split()


@pytest.mark.parametrize("verb", cli.list_commands(click.Context(cli)))
@pytest.mark.parametrize("columns", [40, 57, 80])
def test_h6_help_is_no_wider_than_the_terminal_and_breaks_no_word(
    verb: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    for path in paths(command, (verb,)):
        narrow = help_of(path, columns, monkeypatch, capsys)
        assert [line for line in narrow.splitlines() if width(line) > columns] == [], path
        wide = help_of(path, 1000, monkeypatch, capsys)
        assert words(narrow) == words(wide), path


def test_h6_lists_of_commands_have_whole_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = 0
    for path in paths(cli):
        command: click.Command = cli
        for name in path:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), name)
            assert found is not None
            command = found
        if not path or not isinstance(command, click.Group) or isinstance(command, FirstWord):
            continue
        groups += 1
        shown = help_of(path, 40, monkeypatch, capsys).partition("\nCommands:\n")[2]
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None and inner.help
            if not inner.hidden:
                sentence = inner.get_short_help_str(10_000)
                assert not sentence.endswith("..."), (path, name)
                assert " ".join([name, sentence]) in " ".join(shown.split()), (path, name)
    assert groups >= 8


def test_h6_the_first_page_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = help_of((), 40, monkeypatch, capsys)
    assert max(map(width, shown.splitlines())) <= 40
    assert "Let agents use settings and hooks that a directory brings" in " ".join(shown.split())
