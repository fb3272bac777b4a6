"""Whether a text can be a token of a forge, by how it looks. Pure.

Called by `bullpen auth set`. Tokens that are stored already are not looked at.
"""

import re

from bullpen.errors import BullpenError

# How tokens begin -> which credential they are. Older ones begin in no way of their own.
BEGINNINGS = {
    **dict.fromkeys(("ghp_", "github_pat_", "gho_", "ghu_", "ghs_", "ghr_"), "github-token"),
    **dict.fromkeys(("glpat-", "gloas-", "glptt-", "glcbt-"), "gitlab-token"),
    "sk-ant-oat": "claude-token",
    "sk-ant-": "anthropic-api-key",
    "sk-proj-": "openai-api-key",
    "AIza": "gemini-api-key",
}
OLD = {"github-token": r"[0-9a-f]{40}", "gitlab-token": r"[A-Za-z0-9_-]{20}"}


def check_form(name: str, token: str) -> str:
    """What is odd about it, if anything is; raises if it can be no token of that forge. The token
    itself is in no message."""
    again = f"bullpen auth set {name} < FILE"
    if not token.isascii() or re.search(r"\s", token):
        what = "a space in it" if token.isascii() else "characters that no token has"
        raise BullpenError(f"that is no {name}: it has {what}", hint=again)
    begins = next((each for each in BEGINNINGS if token.startswith(each)), "")
    owner = BEGINNINGS.get(begins, name)
    if owner != name:
        raise BullpenError(
            f"that is no {name}: what begins with {begins} is a {owner}",
            hint=f"bullpen auth set {owner} < FILE",
        )
    if begins or re.fullmatch(OLD[name], token):
        return ""
    usual = ", ".join(each for each, whose in BEGINNINGS.items() if whose == name)
    return f"it begins as no {name} does that we know ({usual})"
