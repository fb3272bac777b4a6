"""The part of GitHub's description that the fake is held to, and how it is made."""
