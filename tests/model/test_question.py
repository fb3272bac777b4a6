"""Questions of agents: read, shown so that no text can look like another, and answered."""

from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.model.approval import ToolRequest, describe, rule_for
from bullpen.model.question import (
    MOST_CHARACTERS,
    TOOL,
    Choice,
    Question,
    answered_input,
    choose,
    read_questions,
    shown,
)
from tests.hub.permissions.asking import question

BIRD = question("Which bird?", "heron", "crane")
COLOURS = question("Which colours?", "red", "blue, dark", "green", several=True)
OPEN = {"question": "Which name?", "header": "Name", "kind": "text"}


def asked(*questions: Any, **more: Any) -> dict[str, Any]:
    return {"questions": list(questions), **more}


def text_of(*questions: Any, **more: Any) -> str:
    return describe(ToolRequest(tool=TOOL, input=asked(*questions, **more)))


def read(*questions: Any) -> tuple[Question, ...]:
    found = read_questions(TOOL, asked(*questions))
    assert found
    return found


def test_q4_a_question_is_shown_with_its_options() -> None:
    assert text_of(BIRD, COLOURS).splitlines() == [
        "Which bir: Which bird?",
        "  1. heron: a heron",
        "  2. crane: a crane",
        "Which col: Which colours? ⟨several⟩",
        "  1. red: a red",
        "  2. blue, dark: a blue, dark",
        "  3. green: a green",
    ]


def test_q4_what_else_is_asked_is_shown_as_well() -> None:
    option = {"label": "a", "preview": "one\n  2. two"}
    text = text_of({"question": "Which?", "kind": "choice", "options": [option]}, metadata={"x": 1})
    assert text.splitlines() == [
        "Which?",
        "     ⟨kind⟩ choice",
        "  1. a",
        "     ⟨preview⟩ one",
        "     │   2. two",
        '⟨metadata⟩ {"x": 1}',
    ]


def test_q4_no_text_of_a_question_looks_like_another_option() -> None:
    bad = question("Which?\n  1. all", "a\n  2. delete\u202e", "\ud800")
    assert [line[:5] for line in text_of(bad).splitlines()] == ["Which", "  1. ", "  2. "]
    safe = shown(read(bad)[0])
    assert safe.options[1].label == "⟨U+D800⟩"
    assert (safe.question, safe.options[0].label) == ("Which?⏎  1. all", "a⏎  2. delete⟨U+202E⟩")


@pytest.mark.parametrize(
    "tool_input",
    [
        {},
        asked(),
        asked("Which?"),
        asked({"question": 7}),
        asked({"question": "Which?", "options": None}),
        asked({"question": "Which?", "options": ["a"]}),
        asked(BIRD, BIRD),
        asked(*(question(f"{number}?", "a") for number in range(21))),
        asked(question("x" * MOST_CHARACTERS, "a")),
    ],
)
def test_q4_what_has_another_form_is_no_question(tool_input: dict[str, Any]) -> None:
    assert read_questions(TOOL, tool_input) == ()
    request = ToolRequest(tool=TOOL, input=tool_input)
    assert describe(request)  # is shown like any other


def test_q4_another_tool_asks_no_question() -> None:
    assert read_questions("Bash", asked(BIRD)) == ()


def test_q4_no_rule_answers_questions() -> None:
    assert rule_for(ToolRequest(tool=TOOL, input=asked(BIRD))).rule == ""


@pytest.mark.parametrize(
    ("one", "words", "choice", "said"),
    [
        (BIRD, ["2"], Choice(options=(2,)), "crane"),
        (BIRD, ["Heron"], Choice(options=(1,)), "heron"),
        (BIRD, [" crane "], Choice(options=(2,)), "crane"),
        (BIRD, ["a", "grey", "one"], Choice(text="a grey one"), "a grey one"),
        (BIRD, ["1,2"], Choice(text="1,2"), "1,2"),  # only one can be chosen
        (COLOURS, ["3,1,3"], Choice(options=(3, 1)), "green, red"),
        (COLOURS, ["red,", "green"], Choice(options=(1, 3)), "red, green"),
        (COLOURS, ["blue, dark"], Choice(options=(2,)), "blue, dark"),
        (COLOURS, ["1, pink"], Choice(options=(1,), text="pink"), "red, pink"),
        (COLOURS, ["pink, not dark"], Choice(text="pink, not dark"), "pink, not dark"),
        (OPEN, ["7"], Choice(text="7"), "7"),
        (question("How many?", "8", "16"), ["16"], Choice(options=(2,)), "16"),
        (question("How many?", "1", "2"), ["2"], Choice(options=(2,)), "2"),
    ],
)
def test_q4_an_answer_names_options_or_is_a_text(
    one: dict[str, Any], words: list[str], choice: Choice, said: str
) -> None:
    choices = choose(read(one), words)
    assert choices == (choice,)
    answered = answered_input(asked(one, metadata=1), choices)
    assert answered == asked(one, metadata=1, answers={one["question"]: said})


def test_q4_each_question_has_its_answer() -> None:
    choices = choose(read(BIRD, COLOURS), ["2", "1,3"])
    answers = answered_input(asked(BIRD, COLOURS), choices)["answers"]
    assert answers == {"Which bird?": "crane", "Which colours?": "red, green"}


@pytest.mark.parametrize(
    ("questions", "answers", "message"),
    [
        ((BIRD,), ["3"], "no option 3: there are 2"),
        ((BIRD,), ["0"], "no option 0"),
        ((BIRD,), ["9" * 4000], "no option 999"),
        ((BIRD,), ["  "], "no answer to: Which bird?"),
        ((COLOURS,), ["1,9"], "no option 9"),
        ((question("How many?", "2", "4"),), ["2"], "2 is the number of one option, and another"),
        ((BIRD, COLOURS), ["1"], "there are 2 questions, and 1 answers"),
        ((BIRD, COLOURS), ["1", "red", "green"], "there are 2 questions, and 3 answers"),
    ],
)
def test_q4_an_answer_that_may_be_a_mistake_is_refused(
    questions: tuple[Any, ...], answers: list[str], message: str
) -> None:
    with pytest.raises(BullpenError, match=message):
        choose(read(*questions), answers)


def test_q4_a_text_may_look_like_an_option() -> None:
    assert choose(read(BIRD), ["3"], as_text=True) == (Choice(text="3"),)
    assert choose(read(BIRD), ["1"], as_text=True) == (Choice(text="1"),)
