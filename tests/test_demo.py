"""`make demo`: what it prints can be copied."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "scripts/demo"


def test_commands_that_the_demo_prints_are_what_it_runs() -> None:
    function = DEMO.read_text().partition("\ntyped() {")[2].partition("\n}\n")[0]
    words = ["task", "amy", 'it\'s a $HOME `x` "y"', "", "a*b", "--timeout=5s", "ünï"]
    ran = subprocess.run(
        ["sh", "-c", f'dim=; plain=; typed() {{{function}\n}}; typed "$@"', "sh", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shlex.split(ran.stdout.removeprefix("$ ")) == ["bullpen", *words]
    assert "--timeout=5s" in ran.stdout.split()


@pytest.mark.storm
def test_the_demo_runs_to_its_end_and_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(scratch), "HOME": str(scratch)}
    bullpen = Path(sys.executable).with_name("bullpen")
    ran = subprocess.run(
        [DEMO, bullpen], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tree = ran.stdout.partition("$ bullpen tree\n")[2].partition("\n\n")[0]
    assert [name in tree for name in ("lead ", "lead.vat ", "lead.round ")] == [True] * 3, tree
    # The second of the two had to be mended, and both are in the branch that landed.
    assert "idle · conflict with lead: cart.py" in ran.stdout
    assert "lead  finished  " in ran.stdout
    assert "+    return round(item.net * 1.19, 2)" in ran.stdout
    assert "main moved" in ran.stdout
    assert list(scratch.iterdir()) == []
