"""The file that `role init` writes: every field of a role, explained by comments.

A test removes the comment signs and compares the result with the model.
"""

import re

from bullpen.errors import BullpenError

TEMPLATE = """\
# A role: what one kind of agent is told, may do and works with.
#
# Lines that begin with # and a space explain. The others that begin with # are
# fields at their default or with an example: take the # away to use one.
# Check the file with: bullpen role check {name}

name: {name}
description: One line for `bullpen role list`

# Appended to the engine's own prompt: what the agent is for and how it works.
instructions: |
  Say what this agent does, how it does it, and when it is finished.

# Replaces the engine's own prompt. Rarely what you want.
#system_prompt: You are ...

# The agent program: claude, gemini, codex, or command for any other program.
#agent_type: claude

# Only with agent_type command: the program, and `deliver: lines` if your messages
# are to be typed to it, each as one line: [message from root · ID] TEXT. A prompt is
# typed without that. `lines-from-agents`: messages of other agents, too; a shell
# takes such a line for a command, and what follows a ; in it for the next one.
#command: my-agent --interactive
#deliver: lines

# A model's name or alias, as the engine knows it. Unset: the engine's choice.
#model: sonnet

# How the engine asks. claude: default, manual, acceptEdits, auto, plan, dontAsk,
# bypassPermissions. Tasks that run in a sandbox are not asked; deny rules hold there too.
#permission_mode: manual

# Where the agent works: . is where you start it, other relative paths are
# relative to the home.
#root_dir: .

# Claude's configuration directory: a path, or `session` for one of its own.
#claude_config_dir: session

# Rules as Claude Code has them: Tool or Tool(pattern). Deny is stronger than allow.
#permissions:
#  allow:
#    - Bash(make test:*)
#    - Edit(docs/**)
#    - WebFetch(domain:docs.python.org)
#    - mcp__bullpen
#  deny:
#    # Stashes are shared by all worktrees of a repository.
#    - Bash(git stash:*)
#    - Read(./.env)
#  # A small model that judges what no rule decides. On as soon as it has instructions.
#  agent:
#    enabled: true
#    model: haiku
#    instructions: |
#      ALLOW what stays inside the working directory.
#      DENY what publishes, deletes or reads secrets.
#      ASK_USER when you are not sure.

# A message to the agent after it has been idle that long: 90s, 10m, 1h30m.
# `condition` is a shell command; the message is sent only if it succeeds.
#heartbeat:
#  idle_timeout: 10m
#  message: Go on, or say what you wait for.
#  condition: test -f TODO.md

# A checkout and a branch of the agent's own.
#worktree:
#  enabled: true
#  # HEAD is what you have checked out when you start it; main is always main.
#  branch_from: HEAD
#  # No branch: to look at things only.
#  use_detached_head: false
#  # Files that git does not track and the agent needs.
#  copy: [.env.example]
#  # Runs once in the new worktree, in a sandbox unless sandbox.enabled is false.
#  setup: npm ci
#  # TCP ports of its own, for servers that it starts: PORT, BULLPEN_PORT_0 to BULLPEN_PORT_9.
#  ports: 10

# What the agent's programs can reach. Unset: on for tasks, off in a terminal.
#sandbox:
#  enabled: true
#  allow_network: true
#  # In addition to the usual system directories; . is the agent's own directory.
#  read_only_paths: [~/reference]
#  read_write_paths: [~/.cache/pip]
#  # Lets git sign and push with your keys.
#  ssh_agent: false
#  # At most so many processes, and so much memory where the kernel can limit it.
#  processes: 1024
#  memory_mb: 8192

# In the engine's own form, or short as here. `timeout` is in seconds.
#hooks:
#  PostToolUse:
#    - matcher: Edit
#      command: make format
#      timeout: 60

# More of the engine's settings. Hooks and permissions have fields of their own.
#settings:
#  includeCoAuthoredBy: false

# Variables of the agent's environment. Values are text: quote numbers.
#env:
#  PYTHONUNBUFFERED: "1"

# delegate: may give tasks to other agents.
#capabilities: [delegate]

# To choose an agent for a task by.
#labels:
#  gpu: "yes"

# The most that agents started by this one may do: the name of a role. Unset: what it may itself.
#may_grant: coder

# Whether it is started again by itself, with its conversation: when the hub starts after a
# reboot, and when it ends though nobody stopped it. on-failure: not if it ended well (exit code 0).
# At most 5 times in 10 minutes. Else: bullpen resume.
#restart: never

# What becomes of agents that it started when it ends before them. adopt: they report to who
# started it. stop: they end, too. keep: they wait for it to be started again.
#orphans: adopt

# How many agents that it started may run at once; never more than max_children in config.yaml.
# 0: it starts none.
#max_children: 4

# Enforced from outside: the agent is warned at 80 % and stopped at 100 %.
#budget:
#  tokens: 2000000
#  usd: 5.0
#  minutes: 120
"""


def new_role(name: str) -> str:
    """The text of a new role file."""
    return TEMPLATE.replace("{name}", name)


def renamed(text: str, old: str, new: str) -> str:
    """A role file's text with another name; comments and all other lines stay."""
    line = re.compile(rf"^(name[ \t]*:[ \t]*)([\"']?){re.escape(old)}\2(?=\s|$)", re.MULTILINE)
    if line.search(text) is None:
        raise BullpenError(
            f"role {old} has no line `name: {old}` to change", hint="copy the file by hand"
        )
    return line.sub(lambda match: f"{match[1]}{new}", text, count=1)
