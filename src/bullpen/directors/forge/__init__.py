"""Directors of forges: they take issues on, have agents work on them, and open pull requests.

One set of rules for all forges (`rules`, on the pure `plan` and `work`); a forge is one adapter
(`github`) of the Protocol in `nouns`. Text from a forge is written by strangers: `texts` is the
only module that puts it into prompts, or what an agent wrote into comments.
"""
