"""What commands give to a hub that they start."""

from pathlib import Path

from bullpen.client.start import hub_environment


def test_b1_a_hub_gets_its_port_and_the_engines_programs_and_nothing_of_an_agent() -> None:
    shell = {
        "PATH": "/bin",
        "BULLPEN_PORT": "9100",
        "BULLPEN_CLAUDE_BIN": "/opt/claude",
        "BULLPEN_CODEX_BIN": "/opt/codex",
        "BULLPEN_TOKEN": "secret",
        "BULLPEN_POD": "p",
        "BULLPEN_DIR": "/elsewhere",
        "BULLPEN_BIN": "?",
    }
    assert hub_environment(shell, Path("/home")) == {
        "PATH": "/bin",
        "BULLPEN_PORT": "9100",
        "BULLPEN_CLAUDE_BIN": "/opt/claude",
        "BULLPEN_CODEX_BIN": "/opt/codex",
        "BULLPEN_DIR": "/home",
    }
