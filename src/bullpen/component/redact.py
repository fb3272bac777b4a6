"""Removes credentials from text: known values, and forms that look like one.

Used by `component/logs` for every line, by the journal, and by the hub for what it stores of hooks
and permission requests. Does no I/O. A false match costs a word of a log line, a missed one a
credential. Text may be hostile: every pattern has to be linear in its length.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
# Shorter ones would blank out half of every line, and protect nothing.
SECRET_CHARACTERS = 6
DEPTH = 8
SHOWN_CHARACTERS = 1 << 16
READ_CHARACTERS = 1 << 17
# A credential that is cut in two is not recognised: so much of a cut end is not shown.
CUT_CHARACTERS = 1 << 13

_START = r"(?<![A-Za-z0-9])"
_NAMES = (
    r"(?:token|secret|password|passwd|credentials?|(?:api|access|private|secret)[-_]?key|cookie)"
)
_PLAIN = r"[^\s\"'&,;\\{}\[\]()<>]"
_QUOTES = r"[\\\"']*"


def _value(least: int) -> str:
    return rf"(?:\"[^\"\n]*\"|'[^'\n]*'|{_QUOTES}{_PLAIN}{{{least},}})"


# Each is a whole credential, or keeps what stands before it in its first group.
_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # PEM, also cut off, or in one line with \n in it; NATS writes seeds like that.
        r"-----BEGIN [A-Z0-9 ]{0,40}(?:PRIVATE KEY|NKEY SEED)-----"
        r".*?(?:-----END [A-Z0-9 ]{0,40}(?:PRIVATE KEY|NKEY SEED)-----|\Z)",
        # Headers: as text, in a dict, in a list of pairs.
        rf"(?i:(authorization{_QUOTES}\s*[,:=]\s*b?{_QUOTES}(?:[a-z]+\s+)?))[^\s\"',;]+",
        r"(?i:(\bbearer\s+))[A-Za-z0-9._~+/=-]{6,}",
        rf"(?i:(\bcookie{_QUOTES}\s*[,:=]\s*b?{_QUOTES}))[^\r\n\"']+",
        rf"(?i:((?<![a-z0-9-])x-[a-z-]{{0,40}}(?:key|token){_QUOTES}\s*[,:=]\s*b?{_QUOTES}))"
        r"[^\s\"',;]+",
        # FOO_TOKEN=…, "foo_token": "…", ?access_token=…
        rf"(\b[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASS){_QUOTES}\s*[=:]\s*)"
        + _value(1),
        rf"(?i:({_NAMES}{_QUOTES}\s*=\s*))" + _value(1),
        rf"(?i:({_NAMES}{_QUOTES}\s*:\s*))" + _value(12),
        rf"(?i:(secret_?access_?key{_QUOTES}\s+))[A-Za-z0-9/+=]{{16,}}",
        # Anthropic, OpenAI, Google
        _START + r"sk-ant-[A-Za-z0-9_-]{8,}",
        _START + r"sk-[A-Za-z0-9_-]{16,}",
        _START + r"AIza[A-Za-z0-9_-]{30,}",
        _START + r"ya29\.[A-Za-z0-9._-]{16,}",
        # GitHub, GitLab, Slack, Telegram
        _START + r"gh[a-z]_[A-Za-z0-9]{16,}",
        _START + r"github_pat_[A-Za-z0-9_]{16,}",
        _START + r"gl[a-z]{2,6}-[A-Za-z0-9._-]{16,}",
        _START + r"xox[a-z]-[A-Za-z0-9-]{8,}",
        _START + r"xapp-[A-Za-z0-9-]{8,}",
        r"(hooks\.slack\.com/services/)[A-Za-z0-9/]+",
        r"(?<![0-9])[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",
        # AWS, JWT, NATS, our own
        _START + r"A[KS]IA[A-Z0-9]{16}",
        _START + r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",
        _START + r"S[ACNOUX][A-Z2-7]{56}",
        _START + r"bullpen_[A-Za-z0-9_-]{40,}",
        # The user in a URL: with a password, or for https alone (that is a token).
        r"(https?://)[^\s/?#\"'<>]+(?=@)",
        r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)[^\s/?#\"'<>:]*:[^\s/?#\"'<>]+(?=@)",
    )
)
# A field of this name holds one, whatever it looks like.
_NAME = re.compile(rf"(?i)(?:^|[_.-])(?:{_NAMES}|authorization)$")


class Redactor:
    """The known secrets, and text without them."""

    def __init__(self) -> None:
        self._forms: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        """From now on these do not appear, as they are or as they are usually quoted."""
        forms = {*self._forms, *(form for value in values for form in _forms(value))}
        # Longest first: one may be a part of another.
        self._forms = tuple(sorted(forms, key=len, reverse=True))

    def text(self, text: str) -> str:
        """The text with every credential replaced, cut to a bearable length after that."""
        length, text = len(text), text[:READ_CHARACTERS]
        # Not one big pattern: that takes a hundred times longer with hundreds of values.
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        for pattern in _PATTERNS:
            text = pattern.sub(_keep_start, text)
        shown = len(text) - (CUT_CHARACTERS if length > READ_CHARACTERS else 0)
        if shown < len(text) or shown > SHOWN_CHARACTERS:
            return f"{text[: max(0, min(shown, SHOWN_CHARACTERS))]}… ({length} characters)"
        return text

    def value(self, value: object, depth: int = 0) -> Any:
        """The same for anything that goes into JSON; what does not, goes in as its text."""
        match value:
            case None | bool():
                return value
            case int() | float():
                text = self.text(str(value))
                is_plain = text == str(value) and math.isfinite(value) and abs(value) < 1 << 63
                return value if is_plain else text
            case (str() | bytes() as name, item) if depth < DEPTH:
                return [self.value(name), self.field(_text(name), item, depth + 1)]
            case dict() if depth < DEPTH:
                return {
                    self.text(_text(name)): self.field(_text(name), item, depth + 1)
                    for name, item in value.items()
                }
            case list() | tuple() | set() | frozenset() if depth < DEPTH:
                return [self.value(item, depth + 1) for item in value]
        return self.text(_text(value))

    def field(self, name: str, value: object, depth: int = 0) -> Any:
        """A value that has a name: the name may say enough."""
        if _NAME.search(name) and value and not isinstance(value, bool):
            return REDACTED
        return self.value(value, depth)


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _forms(value: str) -> set[str]:
    in_json = json.dumps(value)[1:-1]
    raw = value.encode("utf-8", "surrogatepass")
    forms = {
        value,
        value.strip(),
        *value.splitlines(),
        repr(value)[1:-1],
        repr(raw)[2:-1],
        in_json,
        json.dumps(in_json)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
    }
    return {form for form in forms if len(form) >= SECRET_CHARACTERS}


def _keep_start(match: re.Match[str]) -> str:
    start = match[1] if match.re.groups else ""
    return f"{start}{REDACTED}"
