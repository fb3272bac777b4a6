"""A fake of GitHub that keeps state, serves real git, and is held to the official description."""
