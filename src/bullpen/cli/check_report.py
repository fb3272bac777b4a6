"""How the result of checking files is printed: a line per file, its problems below."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bullpen.cli import output
from bullpen.home.yamlfile import FileProblem


@dataclass(frozen=True)
class CheckedFile:
    """A file, what to call it, and what is wrong with it."""

    path: Path
    shown: str
    problems: list[FileProblem]


def report(results: Sequence[CheckedFile], noun: str, as_json: bool) -> None:
    """Print everything; leaves with exit code 1 if anything is wrong."""
    wrong = [result for result in results if result.problems]
    if as_json:
        output.write_json({"files": [_to_json(result) for result in results]})
    else:
        _write(results)
        output.write(_verdict(len(wrong), len(results), noun))
    if wrong:
        raise click.exceptions.Exit(1)


def _write(results: Sequence[CheckedFile]) -> None:
    names = [output.printable(result.shown) for result in results]
    widest = max((output.width(name) for name in names), default=0)
    for name, result in zip(names, results, strict=True):
        count = len(result.problems)
        status = (
            output.colour("1 error" if count == 1 else f"{count} errors", "error")
            if count
            else output.colour("ok", "ok")
        )
        output.write(f"{name}{' ' * (widest - output.width(name))}  {status}")
        rows = [(f"  {_short(p.path)}:{p.line}", p.key, p.message) for p in result.problems]
        output.write_table([], rows)


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.name == "role.yaml" else path.name


def _verdict(wrong: int, all_: int, noun: str) -> str:
    nouns = noun if all_ == 1 else f"{noun}s"
    if not wrong:
        return f"{all_} {nouns} ok" if all_ else f"no {noun}s"
    return f"{wrong} of {all_} {nouns} {'has' if wrong == 1 else 'have'} errors"


def _to_json(result: CheckedFile) -> dict[str, object]:
    return {
        "file": str(result.path),
        "ok": not result.problems,
        "problems": [problem.to_json() for problem in result.problems],
    }
