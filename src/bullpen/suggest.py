"""`did you mean`: the nearest of the words that would have been right."""

from collections.abc import Iterable


def nearest(wrong: str, right: Iterable[str]) -> str:
    """The word most like `wrong`, or an empty text."""
    import difflib  # 5 ms that only a typing error costs

    words = list(right)
    by_lower_case = {word.lower(): word for word in words}
    # Long garbage would cost time and never match.
    near = difflib.get_close_matches(wrong[:100].lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[near[0]] if near else ""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """` · did you mean model?`, or nothing."""
    near = nearest(wrong, right)
    return f" · did you mean {near}?" if near else ""
