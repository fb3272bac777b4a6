"""What a person sees of an agent: its terminal here, its log, its recording.

Talks to holders and session directories only; works while the hub is down.
"""
