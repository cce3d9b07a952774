"""i/n: the i-th of n parts of a run, each of which another process may take."""

from __future__ import annotations


def shard_of(text: str) -> tuple[int, int]:
    """(i − 1, n) of "i/n".

    >>> shard_of("2/8")
    (1, 8)
    """
    try:
        i, n = (int(part) for part in text.split("/"))
    except ValueError:
        raise ValueError(f"--shard is i/n, such as 2/8; got {text!r}") from None
    if not 1 <= i <= n:
        raise ValueError(f"--shard is i/n with i from 1 to n; got {text!r}")
    return i - 1, n
