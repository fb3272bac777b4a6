"""A reader of the text format of Prometheus."""

import re

UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (?P<value>\S+)'
)


def read_prometheus(found: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """As a strict reader would: every line is one that the format knows."""
    assert found.endswith("\n")
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    typed: set[str] = set()
    for line in found[:-1].split("\n"):
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in typed and kind in ("counter", "gauge")
            typed.add(name)
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match["name"] in typed
            pairs = re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', match["labels"] or "")
            labels = {
                key: re.sub(r'\\[\\"n]', lambda escape: UNESCAPED[escape[0]], value)
                for key, value in pairs
            }
            samples.setdefault(match["name"], []).append((labels, float(match["value"])))
    return samples
