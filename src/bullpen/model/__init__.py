"""The nouns of Bullpen: immutable values, no I/O."""
