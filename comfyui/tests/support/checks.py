"""What must hold of every job: the number of calls, exactness at a full budget, no trace left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from .graphs import Job
from .runner import Runner, Sampled

#: Samplers of ComfyUI that geoshrink accelerates; it leaves every other one exact.
ACCELERATED = frozenset(
    {
        "ddim",
        "ddpm",
        "deis",
        "dpmpp_2m",
        "dpmpp_2m_sde",
        "dpmpp_2m_sde_gpu",
        "dpmpp_2m_sde_heun",
        "dpmpp_2m_sde_heun_gpu",
        "dpmpp_3m_sde",
        "dpmpp_3m_sde_gpu",
        "er_sde",
        "euler",
        "euler_ancestral",
        "gradient_estimation",
        "ipndm",
        "ipndm_v",
        "lms",
        "res_multistep",
        "res_multistep_ancestral",
        "sa_solver",
        "uni_pc",
        "uni_pc_bh2",
    }
)


@dataclass
class Row:
    """One line of the matrix; `problems` is empty where everything held."""

    family: str
    condition: str
    calls: str = ""
    error: float | None = None
    direct: float | None = None
    text: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())


def check(
    runner: Runner,
    job: Job,
    condition: str,
    *,
    budget: int = 8,
    runs: int = 1,
    extra: int = 0,
    accelerated: bool | None = None,
) -> Row:
    """Run a job without and with geoshrink, and note what does not hold.

    runs          samplings that the job makes; each has the budget
    extra         calls that it makes beyond the budget
    accelerated   whether calls should be skipped; None: by the sampler's name
    """
    row = Row(job.family, condition)
    full = runner.sample(job)
    if not full.ok:
        row.problems.append(f"ComfyUI alone: {full.result.status} {full.result.message.strip()}")
        return row
    fast = runner.sample(replace(job, geoshrink={"budget": budget}))
    plain = runner.sample(job)
    row.problems += same(plain, full, "without the node, afterwards")
    if not fast.ok:
        row.problems.append(f"{fast.result.status}: {fast.result.message.strip()}")
        return row
    row.text = fast.text()
    if accelerated is None:
        accelerated = job.sampler in ACCELERATED
    count, whole = fast.calls[-runs:], full.calls[-runs:]
    per_step = [calls / steps for calls, steps in zip(whole, full.steps[-runs:])]
    expected = [round((budget + extra) * each) for each in per_step] if accelerated else whole
    row.calls = f"{listed(count)} of {listed(whole)}"
    if count != expected:
        row.problems.append(f"{listed(count)} calls, not {listed(expected)}")
    if plain.calls[-runs:] != whole:
        row.problems.append(f"{listed(plain.calls[-runs:])} calls without the node, afterwards")
    if not accelerated:
        row.problems += said(fast, None)
        row.problems += same(fast, full, "left exact")
        return row
    row.problems += said(fast, f"{budget} + {extra}" if extra else f"{budget}")
    row.error = distance(fast.latent, full.latent)
    if not math.isfinite(row.error):
        row.problems.append("not finite")
    if fast.forwards >= full.forwards:
        row.problems.append(f"{fast.forwards} forwards of {full.forwards}")
    direct = runner.sample(replace(job, steps=budget * runs))
    row.direct = distance(direct.latent, full.latent) if direct.ok else None
    exact = runner.sample(replace(job, geoshrink={"budget": max(full.steps)}))
    row.problems += same(exact, full, "with a budget of all steps")
    return row


def same(one: Sampled, other: Sampled, when: str) -> list[str]:
    """Nothing where two latents are equal bit by bit."""
    if not one.ok:
        return [f"{one.result.status} {when}: {one.result.message.strip()}"]
    if torch.equal(one.latent, other.latent):
        return []
    return [f"not bit-identical {when} ({distance(one.latent, other.latent):.1e})"]


def said(fast: Sampled, calls: str | None) -> list[str]:
    """Nothing where the node says what was done; `calls` is None where all should be exact."""
    text = fast.text()
    if calls is None:
        return [] if "exact" in text else [f"the node does not say why: {text!r}"]
    words = f"{calls} of {fast.steps[-1]} stages exact"
    return [] if words in text else [f"the node does not say {words!r}: {text!r}"]


def listed(numbers: Sequence[int]) -> str:
    return " + ".join(map(str, numbers))
