"""Messages to agents and people: stored (`box`), handed over and proved (`deliver`), heartbeats.

Called by the API, and by every part that sends something: `delivery.send(Message(...))` is the one
way to send. Must not start or stop agents, and never types into a dialog.
"""
