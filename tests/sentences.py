"""What the model does at the prompts of the pages, which are plain sentences. Run as a program it
is the stand-in for Claude Code that knows them. Standard library only.
"""

import json
import sys
from pathlib import Path


def bash(command: str) -> str:
    return f"tool Bash {json.dumps({'command': command})}"


# A sentence in a prompt, and the script (`engines/script.py`) that it stands for.
SCRIPTS = {
    "waits for your verdict": "tool StructuredOutput"
    ' {"verdict": "ASK_USER", "reason": "runs a script of the repository"}',
    "Fix the login bug": " ; ".join(
        (
            "say A token is still taken in the second in which it expires.",
            bash("sed -i 's/now >/now >=/' auth.py"),
            bash("python3 test_auth.py"),
            bash("git commit -qam 'Let a token expire in its last second'"),
            "say Fixed and committed; test_auth.py passes.",
        )
    ),
    "Update the changelog": "slow 90 ; say I read what changed since the last release.",
    "Run the tests": "say All 12 tests pass.",
}


def scripted(text: str) -> str:
    """The text, and the script of the first sentence that it has."""
    for sentence, script in SCRIPTS.items():
        if sentence in text:
            return f"{text} [[{script}]]"
    return text


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().with_name("engines")))
    import script

    known = script.find_script
    script.find_script = lambda text: known(scripted(text))
    import standin

    return int(standin.main())


if __name__ == "__main__":
    sys.exit(main())
