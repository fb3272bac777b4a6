"""Directors of forges: they take issues on, have agents work on them, and open pull requests.

Run by `directors/loop`. One set of rules for all forges (`rules`, on the pure `plan` and `work`);
a forge is one adapter (`github`, `gitlab`) of the Protocol in `nouns`. Text from a forge is written
by strangers: `texts` alone puts it into prompts, or what an agent wrote into comments. Must not
start agents by itself: it asks the hub, by `client`.
"""
