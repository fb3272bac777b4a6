"""What an agent uses instead of a request that only the owner may make: its own tools.

Called by `guard` when it refuses an agent. Decides nothing about rights.
"""

ASK_OWNER = "the tool send_message writes to the owner: to root"

_START = "an agent starts children with the tools spawn_subtree and spawn_workers"
_GIVE = "an agent gives tasks with the tool delegate_task"
_LOOK = "the tool agent_status says how an agent is"
_LOOK_AT_TASK = "the tool task_status says how a task is that you gave"
_DIFF = "the tool agent_diff shows what a child of yours changed"

# The route, as its method and path.
TOOLS = {
    "POST /agents": _START,
    "POST /pods": _START,
    "POST /tasks": _GIVE,
    "POST /agents/{name}/task": _GIVE,
    "GET /tasks": _LOOK_AT_TASK,
    "GET /history": _LOOK_AT_TASK,
    "GET /history/{id}": _LOOK_AT_TASK,
    "GET /task/{id}": _LOOK_AT_TASK,
    "GET /task/{id}/events": _LOOK_AT_TASK,
    "POST /task/{id}/cancel": "the tool cancel_task cancels a task that you gave",
    "POST /landings": "the tool merge_child merges the work of a child, merge_task that of a task",
    "GET /agents/{name}/patch": _DIFF,
    "GET /agents/{name}/diff": _DIFF,
    "GET /agents/{name}/screen": _LOOK,
    "GET /agents/{name}/explain": _LOOK,
    "GET /agents/{name}/transcript": _LOOK,
    "POST /agents/{name}/input": "the tool send_message writes to an agent",
    "GET /wait": "the tool wait_for_event waits for your children",
}
