"""Does a motion find its own text? R@k and the matching score, over any embedder of the two.

Row i of the one belongs to row i of the other. Distances are Euclidean (Guo et al., 2022); vectors
of length one are ranked as by their cosine (TMR; Petrovich et al., 2023). The size of the gallery
and the rule for ties change the number, so they must be given and are part of a metric's version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from .base import SetMetric

Ties = Literal["average", "optimistic", "pessimistic"]
AHEAD = {"average": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # how much of a tie is ahead
Embedder = Callable[[Any], Tensor]


def ranks(queries: Tensor, answers: Tensor, gallery: int, ties: Ties, seed: int = 0) -> Tensor:
    """How many answers are ahead of a query's own: 0 is the best, halves come from ties.

    gallery     answers a query chooses from: its own, and others drawn at random for each query
    ties        of an equally distant answer half is ahead (as in TMR), nothing, or all
    """
    check(queries, answers)
    count = len(queries)
    if not 1 < gallery <= count:
        raise ValueError(f"the gallery must be from 2 to the {count} answers there are: {gallery}")
    if ties not in AHEAD:
        raise ValueError(f"ties must be one of {', '.join(AHEAD)}, got {ties!r}")
    apart = torch.cdist(  # not by products: equal answers stay equally distant
        queries.double(), answers.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    own = apart.diagonal()[:, None]
    ahead = (apart < own) + AHEAD[ties] * (apart == own)
    return (ahead * others(count, gallery - 1, seed).to(ahead.device)).sum(1)


def others(count: int, drawn: int, seed: int) -> Tensor:
    """(count, count), true for `drawn` columns of each row at random, never on the diagonal."""
    lots = torch.rand(count, count, generator=torch.Generator().manual_seed(seed))
    lots.fill_diagonal_(2)
    return lots.argsort(1).argsort(1) < drawn


def recall(
    k: int, queries: Tensor, answers: Tensor, gallery: int, ties: Ties, seed: int = 0
) -> float:
    """R@k: the share of queries, from 0 to 1, with their own answer among the k nearest."""
    if not 0 < k < gallery:
        raise ValueError(f"R@{k} needs a gallery of more than {k} answers, got {gallery}")
    return float((ranks(queries, answers, gallery, ties, seed) < k).double().mean())


def matching_score(queries: Tensor, answers: Tensor) -> float:
    """Mean Euclidean distance of a query from its own answer, in the embedder's unit."""
    check(queries, answers)
    return float((queries.double() - answers.double()).norm(dim=1).mean())


def check(queries: Tensor, answers: Tensor) -> None:
    if queries.shape != answers.shape or queries.ndim != 2 or not queries.numel():
        raise ValueError(
            "needs two matrices of embeddings of one shape (count, width), a row per pair, got "
            f"{tuple(queries.shape)} and {tuple(answers.shape)}"
        )
    for name, matrix in (("queries", queries), ("answers", answers)):
        bad = int((~matrix.isfinite()).any(1).sum())
        if bad:
            raise ValueError(f"{bad} of {len(matrix)} embeddings of the {name} are not finite")


def r_at_3(
    gallery: int,
    ties: Ties,
    embed_motion: Embedder | None = None,
    embed_text: Embedder | None = None,
    seed: int = 0,
) -> SetMetric:
    """R@3 of motions among texts; what has no embedder is a matrix of embeddings already."""

    def of(motions: Any, texts: Any) -> float:
        queries, answers = embedded(motions, embed_motion), embedded(texts, embed_text)
        return recall(3, queries, answers, gallery, ties, seed)

    return SetMetric("R@3", "", True, of, f"1: gallery {gallery}, ties {ties}, seed {seed}")


def matching(embed_motion: Embedder | None = None, embed_text: Embedder | None = None) -> SetMetric:
    """The matching score of motions and their texts; embedders as in r_at_3."""

    def of(motions: Any, texts: Any) -> float:
        return matching_score(embedded(motions, embed_motion), embedded(texts, embed_text))

    return SetMetric("Matching", "", False, of)


def embedded(values: Any, embed: Embedder | None) -> Tensor:
    return torch.as_tensor(values if embed is None else embed(values))
