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
# # Five minutes with geoshrink
#
# A diffusion model draws a picture in many solver steps and is asked once at each. geoshrink keeps
# the steps and asks at a few of them, the *anchors*. At the others it predicts the answer from the
# two latest ones.
#
# Here is a small trained model of fruit, on your CPU. It comes with `pip install geoshrink-bench`.

# %%
import torch

import geoshrink
from geoshrink_bench import zoo
from geoshrink_bench.zoo.drawing import contact_sheet

model = zoo.load("fruit")
fruits = ["Banana 1", "Strawberry 1", "Kiwi 1", "Corn 1"]
velocity = model.velocity(fruits, guidance=3)  # velocity(x, sigma): what the solver integrates
noise = model.noise(len(fruits), seed=0)
STEPS, CALLS = 50, 10

# %% [markdown]
# ## Three ways
#
# From the same noise: every step; direct step reduction, which takes fewer and longer steps; and
# geoshrink, which takes all steps with as few calls.

# %%
made = {}
made["full"] = geoshrink.sample(velocity, noise, model.grid(STEPS))
made["direct"] = geoshrink.sample(velocity, noise, model.grid(CALLS))
made["geoshrink"], report = geoshrink.sample(
    velocity, noise, model.grid(STEPS), budget=CALLS, with_report=True
)

# %% [markdown]
# ## How close are they to the full run?
#
# PSNR of the pictures, in dB, mean over the fruits. More is closer; 6 dB are half the error.


# %%
def psnr(x):
    """The mean PSNR in dB of pictures in [0, 1] to those of the full run."""
    error = (model.values(x) - model.values(made["full"])).square().flatten(1).mean(1)
    return -10 * error.log10().mean().item()


scores = {name: psnr(made[name]) for name in ("direct", "geoshrink")}
for name, score in scores.items():
    print(f"{name:10} {CALLS} calls  {score:.1f} dB")

# %% [markdown]
# ## The pictures

# %%
calls = {"full": STEPS, "direct": CALLS, "geoshrink": CALLS}
tiles = [picture.resize((128, 128)) for x in made.values() for picture in model.decode(x)]
labels = [f"{name}, {calls[name]}" for name in made for _ in fruits]
strip = contact_sheet(tiles, labels, columns=len(fruits))
strip

# %% [markdown]
# ## The report
#
# It needs no full run. It says what was asked and predicted, and about how far the result is from
# the full run. That estimate is in dB of what the solver sees, so it is not the PSNR above. At each
# anchor the *self-check* says how far the prediction was off.

# %%
print(report)

# %% [markdown]
# The true distance in the same unit, beside the estimate:

# %%
error = (made["geoshrink"] - made["full"]).square().flatten(1).sum(1)
true_db = 10 * torch.log10(made["full"].square().flatten(1).sum(1) / error)
print(f"estimated {report.estimated_db:.1f} dB, true {true_db.mean():.1f} dB")

# %% [markdown]
# ## All steps are all steps
#
# With a budget of every step nothing is predicted. The result is the full run, bit for bit.

# %%
same = geoshrink.sample(velocity, noise, model.grid(STEPS), budget=STEPS)
assert torch.equal(same, made["full"])

# %% [markdown]
# ## With your own model
#
# A diffusers pipeline takes one line more, and `handle.remove()` leaves it as it was:
#
#     handle = geoshrink.accelerate(pipe, budget=10)
#     image = pipe("a lighthouse at dawn", num_inference_steps=50).images[0]
#     print(handle.report)
#
# Next: [know your model](know_your_model.py), or `geoshrink compare` on your own pipeline.
