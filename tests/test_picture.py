"""`make picture`: it is drawn from a recording, and shows what README tells."""

import importlib.machinery
import importlib.util
import json
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.pages import PROJECT, shown_commands

SCRIPT = PROJECT / "scripts" / "picture"
PICTURE = PROJECT / "docs" / "picture.svg"


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("picture", str(SCRIPT))
    spec = importlib.util.spec_from_loader("picture", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def lines_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [
        " ".join(part.text or "" for part in line)
        for line in root.iter("{http://www.w3.org/2000/svg}text")
    ]


def recording(*outputs: str) -> str:
    pieces = [json.dumps([0.0, "o", output]) for output in outputs]
    return "\n".join([json.dumps({"version": 2}), *pieces])


def test_the_last_screen_of_a_recording_is_drawn_with_its_colours(picture: ModuleType) -> None:
    told = ["\r\n$ bullpen list\r\n", "\x1b[33mamy   blocked <&\x1b[0m\r\n", "\r\n$ "]
    svg = picture.draw(picture.last_screen(recording(*told)))
    assert lines_of(svg) == ["$ bullpen list", "amy blocked <&"]
    assert f'fill="{picture.COLOURS[3]}">amy</tspan>' in svg
    x = picture.MARGIN + 6 * picture.WIDTH
    assert f'<tspan x="{x:g}"' in svg


def test_the_picture_shows_the_commands_that_the_script_types(picture: ModuleType) -> None:
    lines = lines_of(PICTURE.read_text())
    typed = [line.partition(" $ ")[2] for line in lines if " $ " in line]
    assert typed == list(picture.TYPED)
    assert any("amy coder blocked (permission: Bash)" in line for line in lines)
    assert lines[-1].endswith("Let a token expire in its last second")


def test_commands_of_the_picture_are_those_of_readme(picture: ModuleType) -> None:
    pages = [PROJECT / "README.md", PROJECT / "docs" / "day.md"]
    shown = {
        command.line.partition("  ")[0]
        for page in pages
        for command in shown_commands(page.read_text())
    }
    assert {line for line in picture.TYPED if line.startswith("bullpen ")} <= shown


def test_the_picture_is_small_and_needs_nothing_from_elsewhere() -> None:
    text = PICTURE.read_text()
    assert len(text) < 60_000
    assert "<script" not in text
    assert "href" not in text
    assert text.count("http") == 1  # the name of the format
