"""What an agent is told: which instructions, and in which order."""

from pathlib import Path
from typing import get_args

import pytest

from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.tasks.prompts import MOST_BYTES, Kinds, assemble, load_instructions
from bullpen.model.task import Context

SHOP = Context(name="shop", prompt="It sells shoes.\n")
TOLD = "Project shop:\nIt sells shoes."


@pytest.fixture(params=get_args(Kinds))
def kind(request: pytest.FixtureRequest) -> Kinds:
    found: Kinds = request.param
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.instructions.mkdir(parents=True)
    return found


def test_t6_shipped_instructions_want_no_ai_in_commits(home: Home, kind: Kinds) -> None:
    said = " ".join(load_instructions(home, kind).split())
    assert "Mention no AI, assistant or tool in commits" in said
    assert "no co-author line" in said


@pytest.mark.parametrize("own", ["Our own rules.\n", ""])
def test_t6_the_home_has_the_last_word(home: Home, kind: Kinds, own: str) -> None:
    (home.instructions / f"{kind}.md").write_text(own)
    assert load_instructions(home, kind) == own


def test_t6_instructions_that_cannot_be_read_are_not_passed_over(home: Home, kind: Kinds) -> None:
    own = home.instructions / f"{kind}.md"
    own.mkdir()
    with pytest.raises(BullpenError, match="Is a directory"):
        load_instructions(home, kind)
    own.rmdir()
    own.write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(BullpenError, match=f"more than {MOST_BYTES} bytes"):
        load_instructions(home, kind)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "Do it"),
        ({"instructions": "Rules.\n"}, "Rules.\n\nDo it"),
        ({"project": SHOP}, f"{TOLD}\n\nDo it"),
        (
            {"instructions": "Rules.\n", "project": SHOP, "messages": ["One", "Two"]},
            f"Rules.\n\n{TOLD}\n\nOne\n\nTwo\n\nDo it",
        ),
        ({"instructions": "\n \n", "messages": [""]}, "Do it"),
    ],
)
def test_t6_instructions_then_project_then_the_prompt(given: dict[str, object], told: str) -> None:
    assert assemble("Do it", **given) == told  # type: ignore[arg-type]
