"""The daemon of one home: it decides and remembers; holders only hold."""
