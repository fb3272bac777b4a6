"""A question of an agent with its options: read from what its program asks, shown, answered. Pure.

Called by `model/approval.py`, which shows it, and by the hub, which takes the person's answer. The
form is that of Claude Code's AskUserQuestion (2.1.325). Whatever does not fit it is no question
here, and is shown like any other request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field, ValidationError

from bullpen.errors import BullpenError
from bullpen.model.value import Value
from bullpen.text import in_one_line, literal, literal_value

TOOL = "AskUserQuestion"
MOST = 20  # questions, and options of each: the program allows four
MOST_CHARACTERS = 20_000  # of all of them, because lists carry them
KNOWN = ("question", "header", "options", "multiSelect")
KNOWN_OF_OPTION = ("label", "description")


class Option(Value):
    """One of the answers that are offered."""

    label: str
    description: str = ""


class Question(Value):
    """What is asked. Without options the answer is a text."""

    question: str
    header: str = ""
    options: tuple[Option, ...] = Field(default=(), max_length=MOST)
    multi_select: bool = Field(
        default=False, validation_alias=AliasChoices("multiSelect", "multi_select")
    )


class Choice(Value):
    """What was answered: the numbers of options, as they are shown, and words of one's own."""

    options: tuple[int, ...] = ()
    text: str = ""


class _Questions(Value):
    questions: tuple[Question, ...] = Field(min_length=1, max_length=MOST)


def read_questions(tool: str, tool_input: Mapping[str, Any]) -> tuple[Question, ...]:
    """What a tool's input asks; nothing if it is no such tool, or has another form."""
    if tool != TOOL:
        return ()
    try:
        questions = _Questions.model_validate(tool_input).questions
    except ValidationError:
        return ()
    names = {one.question for one in questions}  # by which the program knows the answers
    size = sum(len(text) for one in questions for text in _texts(one))
    return questions if len(names) == len(questions) and size <= MOST_CHARACTERS else ()


def shown(question: Question) -> Question:
    """The same with texts that can be shown: a line each, and nothing in them is invisible."""
    options = tuple(
        Option(label=_line(one.label), description=_line(one.description))
        for one in question.options
    )
    update = {"question": _line(question.question), "header": _line(question.header)}
    return question.model_copy(update={**update, "options": options})


def _texts(question: Question) -> Iterator[str]:
    yield from (question.question, question.header)
    for option in question.options:
        yield from (option.label, option.description)


def _line(text: str) -> str:
    return in_one_line(literal(text))


# ── shown ────────────────────────────────────────────────────────────────────


def questions_text(tool_input: Mapping[str, Any]) -> str:
    """All of them for people, an option in a line with its number. No text of theirs can look like
    a line of its own; fields that are not known here stand below as `⟨name⟩ value`."""
    questions = [_question_lines(fields) for fields in tool_input["questions"]]
    return "\n".join(line for lines in questions for line in lines)


def _question_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    question = shown(Question.model_validate(fields))
    header = f"{question.header}: " if question.header else ""
    yield f"{header}{question.question}{' ⟨several⟩' if question.multi_select else ''}"
    yield from _other_fields(fields, KNOWN)
    for number, (option, given) in enumerate(
        zip(question.options, fields.get("options", ()), strict=True), 1
    ):
        description = f": {option.description}" if option.description else ""
        yield f"  {number}. {option.label}{description}"
        yield from _other_fields(given, KNOWN_OF_OPTION)


def _other_fields(fields: Mapping[str, Any], known: Sequence[str]) -> Iterator[str]:
    for name, value in fields.items():
        if name not in known:
            text = literal_value(value).replace("\n", "\n     │ ")
            yield f"     ⟨{_line(name)}⟩ {text}"


# ── answered ─────────────────────────────────────────────────────────────────


def choose(
    questions: Sequence[Question], answers: Sequence[str], as_text: bool = False
) -> tuple[Choice, ...]:
    """What a person's answers mean, one for each question; all words are one answer if there is
    one question. `as_text`: none of them names an option."""
    if len(questions) == 1:
        answers = (" ".join(answers),)
    if len(answers) != len(questions):
        raise BullpenError(
            f"there are {len(questions)} questions, and {len(answers)} answers",
            hint='one answer for each, in their order; one of several words: "in quotes"',
        )
    return tuple(_choice(*pair, as_text) for pair in zip(questions, answers, strict=True))


def _choice(question: Question, answer: str, as_text: bool) -> Choice:
    answer = answer.strip()
    if not answer:
        raise BullpenError(
            f"no answer to: {_line(question.question)}",
            hint="the number or the words of an option, or a text of your own",
        )
    if as_text or not question.options:
        return Choice(text=answer)
    if number := _find_option(question, answer):
        return Choice(options=(number,))
    parts = [part.strip() for part in answer.split(",")] if question.multi_select else []
    numbers = {part: _find_option(question, part) for part in parts if part}
    if not any(numbers.values()):
        return Choice(text=answer)
    chosen = dict.fromkeys(number for number in numbers.values() if number)
    own = (part for part, number in numbers.items() if not number)
    return Choice(options=tuple(chosen), text=", ".join(own))


def _find_option(question: Question, words: str) -> int:
    """The number of the option that is meant; 0 if none is. A number that may mean two of them, or
    none, is a mistake rather than a text."""
    labels = [_line(option.label).strip().casefold() for option in question.options]
    by_words = labels.index(words.casefold()) + 1 if words.casefold() in labels else 0
    if not (words.isascii() and words.isdecimal()):
        return by_words
    by_number = int(words) if int(words) <= len(labels) else 0
    if by_words and by_number and by_words != by_number:
        raise BullpenError(
            f"{words} is the number of one option, and another one is called so",
            hint=f"--text: it is not the number · {_line(question.question)}",
        )
    if not by_words and not by_number:
        raise BullpenError(
            f"no option {words}: there are {len(labels)}",
            hint=f"--text: it is an answer of your own · {_line(question.question)}",
        )
    return by_number or by_words


def answered_input(tool_input: Mapping[str, Any], choices: Sequence[Choice]) -> dict[str, Any]:
    """What the tool is to run with, so that its result is these answers."""
    questions = _Questions.model_validate(tool_input).questions
    answers = {
        question.question: _answer_text(question, choice)
        for question, choice in zip(questions, choices, strict=True)
    }
    return {**tool_input, "answers": answers}


def _answer_text(question: Question, choice: Choice) -> str:
    labels = [question.options[number - 1].label for number in choice.options]
    return ", ".join([*labels, choice.text] if choice.text else labels)
