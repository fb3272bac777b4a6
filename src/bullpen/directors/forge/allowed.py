"""Whose word counts at a repository. Called by `rules`, anew for each look."""

from collections.abc import Sequence

from bullpen.directors.forge import texts
from bullpen.directors.forge.nouns import Comment, Forge


class Allowed:
    """Whose word counts, found out once per look: those on the list; without one, who may write."""

    def __init__(self, forge: Forge, names: tuple[str, ...] | None, me: str) -> None:
        self.me = me
        self._forge = forge
        self._names = None if names is None else {name.lower() for name in names}
        self._known: dict[str, bool] = {}

    async def counts(self, person: str) -> bool:
        if person not in self._known:
            self._known[person] = (
                await self._forge.may_write(person)
                if self._names is None
                else person.lower() in self._names
            )
        return self._known[person]

    async def those(self, comments: Sequence[Comment]) -> tuple[Comment, ...]:
        """The comments of people whose word counts. What a director posted with the same token is
        no order."""
        return tuple(
            [
                each
                for each in comments
                if not (each.author == self.me and texts.MARK in each.body)
                if await self.counts(each.author)
            ]
        )
