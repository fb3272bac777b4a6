"""Names that no agent, role or project may have."""

HOSTILE = (
    "..",
    ".",
    "../amy",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "",
    "a" * 64,
    "-x",
    "аmy",
    "Amy",
    "a\n",
)
