"""Text between strangers, agents and a forge: D2, D3. Pure."""

import html
import re

import pytest

from bullpen.directors.forge.nouns import Comment
from bullpen.directors.forge.texts import (
    CHANGES_REQUESTED,
    CI_FAILED,
    COMMENT,
    CONFLICT,
    MOST_POSTED_CHARACTERS,
    PLACEHOLDERS,
    REVIEW,
    WORK,
    FoundSecret,
    Publisher,
    comments_text,
    fill,
    harmless,
    marker,
    prompt_for,
    says_lgtm,
)
from bullpen.directors.forge.work import Work

ALL = "".join(f"{{{{.{name}}}}}" for name in PLACEHOLDERS)


def work(**fields: str) -> Work:
    return Work(**{"number": 7, "title": "[robo] T", "body": "B", "author": "ann", **fields})


@pytest.mark.parametrize(
    "template", [WORK, REVIEW, COMMENT, CI_FAILED, CHANGES_REQUESTED, CONFLICT]
)
def test_d3_placeholders_in_what_strangers_wrote_are_text(template: str) -> None:
    hostile = work(title=f"[robo] {ALL}", body=f"{ALL} {{{{.Body}}}}")
    comments = [Comment(id=1, author="{{.Body}}", body="{{.Title}} {{.Comments}}")]
    prompt = prompt_for(template, hostile, comments_text(comments))
    assert "{{" not in prompt_for(template, work(), "")
    # Each is there as often as it was written, where it was written.
    assert (ALL in prompt) == ("{{.Title}}" in template)
    assert prompt.count("{{.Body}} wrote:") == template.count("{{.Comments}}")


def test_d3_without_one_pass_they_would_be_expanded() -> None:
    """The other half: what a replacement one after the other makes of the same."""
    body, text = "{{.Comments}}", "{{.Body}}"
    for name, value in (("Body", body), ("Comments", "SECRET")):
        text = text.replace(f"{{{{.{name}}}}}", value)
    assert text == "SECRET"
    assert fill("{{.Body}}", {"Body": body, "Comments": "SECRET"}) == body


def test_d3_a_prompt_is_bounded_and_has_no_zero_byte() -> None:
    prompt = prompt_for(WORK, work(body="x" * 10_000_000 + "\0", title="a\0b\nc" * 1000), "")
    assert len(prompt) < 1 << 20 and "\0" not in prompt
    assert "cut: 10000001 characters" in prompt


@pytest.mark.parametrize(
    ("output", "is_good"),
    [
        ("LGTM", True),
        ("Fine.\n\nLGTM\n\n", True),
        ("  LGTM  ", True),
        ("LGTM, but one thing", False),
        ("LGTM\nWait, no.", False),
        ("lgtm", False),
        ("not LGTM", False),
        ("", False),
    ],
)
def test_d2_lgtm_counts_alone_on_the_last_line(output: str, is_good: bool) -> None:
    assert says_lgtm(output) is is_good


ACTS = re.compile(r"(?m)@\w|#\d|!\d|(?i:gh-\d)|/(issues|work_items)/\d|<!--|^\s*/merge")


def as_read(text: str) -> str:
    """As a forge reads it: entities are characters, and GitLab deletes carriage returns."""
    return html.unescape(text.replace("\r", ""))


@pytest.mark.parametrize(
    "text",
    [
        "cc @ann and @acme/team",
        "cc @_ann",
        "fixes #12",
        "Closes GH-12",
        "resolves https://github.com/acme/shop/issues/12",
        "closes https://gitlab.com/acme/shop/-/work_items/12",
        "closes acme/shop#12",
        "see !12",
        "cc &commat;ann, &#64;ann and &#x40;ann",
        "fixes &num;12",
        "ok\n/merge",
        "<!-- bullpen robo: issue 1 claim -->",
        "<!-- hidden -->",
    ],
)
def test_d3_what_an_agent_writes_notifies_closes_and_hides_nothing(text: str) -> None:
    assert ACTS.search(as_read(text))
    posted = Publisher(dict).clean(text)
    assert ACTS.search(as_read(posted)) is None
    assert posted.replace("\u200b", "") == text


@pytest.mark.parametrize("control", ["\r", "\r\r", "\0", "\x0b", "\x1b", "\x7f", "\x85"])
@pytest.mark.parametrize(
    "text",
    [
        "ok\n/{}merge",
        "{}/merge",
        "cc @{}ann",
        "fixes #{}12",
        "Closes GH{}-12",
        "see !{}12",
        "closes /issues{}/{}12",
        "cc &{}commat;ann",
        "<{}!-- bullpen robo: issue 1 claim -->",
    ],
)
def test_d3_control_characters_hide_nothing_that_a_forge_would_act_on(
    text: str, control: str
) -> None:
    hidden = text.replace("{}", control)
    deleted = hidden.replace(control, "")  # as GitLab does with "\r"
    assert ACTS.search(as_read(deleted))
    posted = Publisher(dict).clean(hidden)
    assert control not in posted and ACTS.search(as_read(posted)) is None
    assert Publisher(dict).clean("a\tb\r\nc") == "a\tb\nc", "lines and tabs stay"


def test_d3_control_characters_hide_no_credential() -> None:
    secret = "hunter2-of-the-home"
    hidden = "hunter2\r-of\0-the-home"
    assert secret in re.sub("[\r\0]", "", hidden)
    assert secret not in Publisher(lambda: {"github-token": secret}).clean(hidden)


def test_d3_what_is_posted_holds_no_credential_and_is_bounded() -> None:
    secrets = ["hunter2-of-the-home", "sk-ant-api03-abcdefghijklmnop"]
    others = ["ghp_" + "a" * 36, "bullpen_director_" + "b" * 43, "AKIA" + "A" * 16]
    text = " ".join([*secrets, *others])
    clean = Publisher(lambda: {each: each for each in secrets}).clean(text)
    assert not any(secret in clean for secret in (*secrets, *others))
    assert secrets[0] in Publisher(dict).clean(text), "only who knows it can hide it"
    assert len(Publisher(dict).clean("x" * 10_000_000)) < MOST_POSTED_CHARACTERS + 100


def test_d3_a_credential_that_is_set_later_is_not_posted_or_pushed_either() -> None:
    secrets = {"gitlab-token": "hunter2-of-the-home"}
    publisher = Publisher(lambda: secrets)
    later = "correct-horse-battery"
    assert later in publisher.clean(later) and not publisher.find_secret(later.encode())
    secrets["gitlab-token"] = later
    assert later not in publisher.clean(later) and publisher.find_secret(later.encode())
    assert publisher.find_secret(b"hunter2-of-the-home"), "the old one is still none of others'"


def test_d3_a_credential_that_is_found_is_named_and_one_that_is_none_stops_nothing() -> None:
    secrets = {
        "gitlab-webhook-secret": "x",
        "gemini-api-key": "seven77",
        "github-token": "eight888",
    }
    publisher = Publisher(lambda: secrets)
    assert publisher.find_secret(b"an example, seven77") is None
    assert publisher.find_secret(b"in eight888") == FoundSecret(name="github-token", offset=3)


def test_d2_a_mark_names_the_director_and_the_deed() -> None:
    assert marker("robo", "issue 1 claim") == "<!-- bullpen robo: issue 1 claim -->"
    assert "<!--" not in harmless(marker("robo", "issue 1 claim"))
