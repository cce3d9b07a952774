# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Know your model
#
# The default knows no model: its anchors follow from the noise levels alone. It gets better when it
# knows yours. Three ways here, from cheap to dear: one exact batch that teaches, a profile, and a
# quality in place of a budget.
#
# The model is a mixture of eight Gaussians in 16 dimensions. Its velocity is known in closed form,
# so it is a perfectly trained flow that needs no weights and takes no time. Put your own
# `velocity(x, sigma)` in its place.

# %%
import torch

import geoshrink

DIMENSIONS, MODES, SPREAD, DISTANCE = 16, 8, 0.2, 0.5
STEPS, CALLS = 24, 7


def noise(count, seed):
    """Standard normal noise."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, DIMENSIONS, generator=generator)


centres = DISTANCE * noise(MODES, seed=0)
uniform = [1 - i / STEPS for i in range(STEPS + 1)]
sigmas = [3 * u / (1 + 2 * u) for u in uniform]  # shift 3, as SD3 has it


def velocity(x, sigma):
    """E[noise − data | x] where x = (1 − σ)·data + σ·noise."""
    alpha = 1 - sigma
    variance = (alpha * SPREAD) ** 2 + sigma**2
    off = x[:, None] - alpha * centres
    weight = torch.softmax(-off.square().sum(-1) / (2 * variance), 1)
    away = sigma / variance * off - (centres + alpha * SPREAD**2 / variance * off)
    return (weight[..., None] * away).sum(1)


def db(x, full):
    """10·log10(‖full run‖²/‖error‖²) in what the solver sees."""
    return 10 * (full.square().sum() / (x - full).square().sum()).log10().item()


# %% [markdown]
# What everything below is measured on: 32 samples, their full run, and the default.

# %%
x = noise(32, seed=1)
full = geoshrink.sample(velocity, x, sigmas)
found = {"default": db(geoshrink.sample(velocity, x, sigmas, budget=CALLS), full)}
print(f"the default, {CALLS} calls: {found['default']:.1f} dB to the full run")

# %% [markdown]
# ## One exact batch teaches
#
# `learn` makes the first run exact and keeps what it shows. Later runs ask where that says. With a
# pipeline it is `accelerate(pipe, budget=7, learn=True)`. Here we keep the memory ourselves, since
# our velocity holds no network by which to know it again. The teachers are other samples than those
# that are measured.

# %%
learning = geoshrink.Learning()
options = {"budget": CALLS, "learn": learning, "with_report": True}
_, first = geoshrink.sample(velocity, noise(4, seed=2), sigmas, **options)
x0, second = geoshrink.sample(velocity, x, sigmas, **options)
found["learned"] = db(x0, full)
print(first.summary(), "|", second.summary())
print(f"after four exact samples, {CALLS} calls: {found['learned']:.1f} dB")

# %% [markdown]
# ## A profile
#
# Several full runs on a few samples, made once. It says where this model's outputs can be
# predicted, and where an error would grow.

# %%
profile = geoshrink.profile(velocity, noise(16, seed=3), sigmas, budgets=(4, CALLS, 10), quiet=True)
print(profile)
print(profile.curve(range(5, 12, 2)))  # dB to expect of each budget

# %% [markdown]
# A plan is plain data. `plan.to_json()` is a file for another process or another person, and
# `plan=` takes it wherever `budget=` is taken.

# %%
plan = profile.plan(budget=CALLS)
print(plan)
shared = geoshrink.Plan.from_json(plan.to_json())
found["planned"] = db(geoshrink.sample(velocity, x, plan=shared), full)
print(f"planned, {CALLS} calls: {found['planned']:.1f} dB")

# %% [markdown]
# ## A quality in place of a budget
#
# `target_db=30` makes as many calls as 30 dB are expected to take, and decides at each. A profile
# makes the first guess: `profile.plan(target_db=30, hold=True)`.

# %%
for name, options in {
    "no profile": {"sigmas": sigmas, "target_db": 30},
    "profile": {"plan": profile.plan(target_db=30, hold=True)},
}.items():
    x0, report = geoshrink.sample(velocity, x, with_report=True, **options)
    found[name] = db(x0, full)
    print(f"{name}: {report.evaluations} calls, {report.estimate}, measured {found[name]:.1f} dB")

# %% [markdown]
# ## Which one?
#
# - Try the default, and read `report.estimate` and `report.doubtful`.
# - Many pictures in one setting: `learn=True` costs one exact picture.
# - A model that you serve: profile it once, and ship the plan.
#
# This mixture is a toy, chosen since knowing it helps much. docs/learning.md says what each way
# gains on trained models, and where it loses. `geoshrink compare` and `geoshrink plan` measure your
# own.
