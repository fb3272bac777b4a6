"""What a person sees of an agent: its terminal, its log, its recording.

Called by commands (`attach`, `logs`, `peek`, `record`) and by the hub for screens.
Talks to holders and reads session directories. Must not need a hub: it works while none runs.
"""
