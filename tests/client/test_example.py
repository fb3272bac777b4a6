"""The program of docs/client.md, as a person runs it: in a repository, with starter roles."""

import re
import subprocess
import sys

import pytest

from tests.pages import PROJECT
from tests.shop import made_shop


@pytest.mark.slow
def test_the_example_of_the_docs_runs() -> None:
    text = (PROJECT / "docs/client.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with made_shop("standin") as shop:
        assert shop.bullpen("init").code == 0
        done = subprocess.run(
            [sys.executable, "-c", example],
            cwd=shop.repository,
            env=shop.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            f"amy works in {shop.repository}/.bullpen/worktrees/amy",
            "amy wants to run: python3 test_auth.py",
            "tester says: All 12 tests pass.",
            "the task is completed",
        ]
