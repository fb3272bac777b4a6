"""The API keeps what its description promises, whatever it is asked; the tests are in
`descriptions.py`.

Made-up requests follow from the description when the tests are collected, which takes half a
minute: a process of their own does that once, and not everybody who collects tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("descriptions.py")


@pytest.mark.storm
def test_b5_every_answer_to_what_is_made_up_is_as_described() -> None:
    words = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, TESTS], cwd=TESTS.parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 40, "it is made from what the API describes"
