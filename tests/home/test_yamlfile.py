import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.home.yamlfile import MAX_BYTES, Document, parse, read

FILE = Path("role.yaml")


def only_problem(document: Document) -> tuple[int, str, str]:
    (problem,) = document.problems
    return problem.line, problem.key, problem.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("no", "no"),
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("2026-01-02", "2026-01-02"),
        ("12:30", "12:30"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("''", ""),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_r2_plain_values_follow_yaml_1_2(text: str, value: object) -> None:
    found = parse(FILE, f"key: {text}")
    assert found.problems == ()
    assert (found.data["key"], type(found.data["key"])) == (value, type(value))


def test_r2_every_key_and_entry_has_its_line() -> None:
    document = parse(FILE, "# top\nname: a\nlist:\n  - one\n  - two:\n      three: 3\n")
    assert document.data == {"name": "a", "list": ["one", {"two": {"three": 3}}]}
    lines = {
        ("name",): 2,
        ("list",): 3,
        ("list", 0): 4,
        ("list", 1, "two"): 5,
        ("list", 1, "two", "three"): 6,
    }
    assert lines.items() <= document.line_of.items()


def test_r2_a_missing_key_has_the_line_of_the_block_around_it() -> None:
    document = parse(FILE, "name: a\n\nheartbeat:\n  message: x\n")
    assert document.line(("heartbeat", "idle_timeout")) == 3
    assert document.line(("gone", "altogether")) == 1


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb:\n\tc: 2\n", 3, "tab"),
        ("a: |\n x\n\ty\n", 3, "tab"),
        ("a: 1\nb: c: d\n", 2, "quote the text"),
        ("a: [1,\nb: 2\n", 1, "does not end"),
        ("a: {b: 1\n", 1, "does not end with }"),
        ("a: 1\nb: 'x\nc: 2\n", 2, "quoted text does not end"),
        ("a: 1\njust words\nb: 2\n", 2, "no `key: value`"),
        ("a:\n  b: 1\n c: 2\n", 3, "indentation"),
        ("a: @x\n", 1, "quotes"),
        ("a: 1\n---\nb: 2\n", 2, "more than one document"),
        ("a: 1\n...\nb: 2\n", 3, "more than one document"),
        ("a: *x\n", 1, "refers to nothing"),
        ("a: &x [*x]\n", 1, "refers to nothing"),
        ("a: 1\n? [b]\n: 2\n", 2, "a key must be plain text"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys"),
        ("a: 1\n7: 2\n", 2, "a key must be text"),
        ("a: !secret x\n", 1, "!secret"),
        ("a: !!int '3'\n", 1, "tags"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ("a: 1\nb: \ud800\n", 2, "U+D800"),
        ('a: "x\\0y"\n', 1, "NUL"),
        ("a: " + "[" * 60 + "]" * 60, 1, "nested"),
        # The parser's own composer ends the interpreter over this one.
        ("a: " + "[" * 100_000, 1, "nested"),
    ],
)
def test_r2_bad_form_is_one_readable_problem_with_its_line(text: str, line: int, says: str) -> None:
    found_line, _, message = only_problem(parse(FILE, text))
    assert found_line == line
    assert says in message


def test_r2_a_key_that_is_there_twice_names_both_lines() -> None:
    document = parse(FILE, "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 4\n")
    assert [(p.line, p.key, p.message) for p in document.problems] == [
        (5, "b.c", "is there twice · first in line 3"),
        (6, "a", "is there twice · first in line 1"),
    ]


def test_r2_a_rule_with_a_colon_needs_no_quotes_in_brackets() -> None:
    document = parse(FILE, "allow: [Read, Bash(git add:*)]\nhours: {quiet: 22:00-07:00}\n")
    assert document.problems == ()
    assert document.data["allow"] == ["Read", "Bash(git add:*)"]
    assert document.data["hours"] == {"quiet": "22:00-07:00"}
    assert document.line_of["hours", "quiet"] == 2


def test_aliases_repeat_a_value() -> None:
    assert parse(FILE, "a: &x [1, 2]\nb: *x\n").data == {"a": [1, 2], "b": [1, 2]}


def test_r2_a_few_aliases_cannot_stand_for_a_billion_values() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 10))
    line, key, message = only_problem(parse(FILE, "l0: &l0 [x]\n" + levels))
    assert (line, key.split(".")[0]) == (5, "l4")
    assert "more than 20000 values" in message


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n...\n"])
def test_an_empty_file_has_no_data_and_no_problem(text: str) -> None:
    document = parse(FILE, text)
    assert (document.data, document.problems) == (None, ())


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read(path).data == {"name": "a"}


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"a: 1\nb: \xff\n", 2, "not UTF-8: byte 0xff"),
        (b"a: \x00\n", 1, "U+0000"),
        (b"#" * (MAX_BYTES + 1), 1, "larger than 1 MiB"),
    ],
)
def test_r2_a_file_that_is_no_text_is_a_problem(
    tmp_path: Path, content: bytes, line: int, says: str
) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    found_line, _, message = only_problem(read(path))
    assert found_line == line
    assert says in message


def test_r2_what_is_no_file_is_a_problem(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    for path, says in ((pipe, "not a file"), (tmp_path, "not a file"), (loop, "cannot be read")):
        assert says in only_problem(read(path))[2]
    assert "No such file" in only_problem(read(tmp_path / "gone.yaml"))[2]


@given(st.text(alphabet=st.sampled_from("ab:-?[]{}&*!|>'\"%@`,#~<\n \t0.\\x\x07é"), max_size=60))
def test_r2_any_text_is_read_or_is_a_problem(text: str) -> None:
    document = parse(FILE, text)
    lines = max(len(text.splitlines()), 1)
    assert all(1 <= problem.line <= lines + 1 for problem in document.problems)


@given(st.binary(max_size=60))
def test_r2_any_bytes_are_read_or_are_a_problem(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    read(path)
