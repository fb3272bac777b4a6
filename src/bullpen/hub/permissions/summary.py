"""What lists and events say of a request: the beginning of its text, its digest, its rule.

Called by `approvals`, in threads: a text may be long. A person is never shown a changed text: an
event whose text would hold what looks like a credential has none. Keeps nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.component.redact import Redactor
from bullpen.model.approval import TEXT_CHARACTERS, Rule, ToolRequest, describe, digest, rule_for
from bullpen.model.question import shown

_redactor = Redactor()


def summarize(request: ToolRequest) -> dict[str, Any]:
    """Fields of an approval: what lists show of it, and its rule; the digest says of what."""
    text = describe(request)
    more = max(0, len(text) - TEXT_CHARACTERS)
    fields = {"text": text[:TEXT_CHARACTERS], "more": more, "digest": digest(request)}
    questions = tuple(map(shown, request.questions))
    return {**fields, "rule": _rule(request), "questions": questions}


def _rule(request: ToolRequest) -> Rule:
    rule = rule_for(request)
    if rule.rule and _redactor.text(rule.rule) != rule.rule:
        return Rule(why_not="it holds what looks like a credential")
    if rule.rule.startswith(("Read(", "Edit(")) and Path(rule.rule[6:-1]).is_dir():
        return Rule(why_not="a rule for a directory is one for all that is in it")
    return rule


def for_event(tool: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says of it. Events stay, so they hold no credentials; questions are in the
    text, and read again from what is kept while it waits."""
    fields = {"tool": tool, **summary, "rule": summary["rule"].model_dump()}
    del fields["questions"]
    if _redactor.text(fields["text"]) != fields["text"]:
        fields |= {"text": "", "more": fields["more"] + len(fields["text"])}
    return fields
