"""Corrected cells through whole pipelines: where they act, and where nothing may be touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from geoshrink import Report, accelerate

d: Any = pytest.importorskip("diffusers")
image: Any = pytest.importorskip("hosts.image")
video: Any = pytest.importorskip("hosts.video")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

STEPS = 12
ANCHORS = [0, 1, 2, 5, 9]
CORRECTED = {
    "FluxPipeline": image,
    "StableDiffusion3Pipeline": image,
    "StableDiffusionPipeline": image,
    "WanPipeline": video,
    "HunyuanVideoPipeline": video,
}
#: They blend what is known into the latents behind every step.
BLENDED = ["FluxInpaintPipeline", "StableDiffusion3InpaintPipeline", "QwenImageInpaintPipeline"]


def result(table: Any, name: str, **options: Any) -> tuple[Tensor, Report]:
    pipe, kwargs = table.PIPELINES[name]()
    kwargs = {**kwargs, "num_inference_steps": STEPS}
    kwargs["generator"] = torch.Generator().manual_seed(0)
    if "strength" in kwargs:
        kwargs["strength"] = 1.0
    torch.manual_seed(0)
    with accelerate(pipe, **options) as handle:
        out = image.tensor(pipe(**kwargs))
        assert handle.report is not None
        return out, handle.report


def anchors_corrected(report: Report) -> list[int]:
    return [row.stage for row in report.stages if row.correction is not None]


@pytest.mark.parametrize("name", CORRECTED)
def test_a_pipeline_is_corrected_at_the_end_of_every_cell(name):
    table = CORRECTED[name]
    out, report = result(table, name, anchors=ANCHORS, correct=True)
    plain, _ = result(table, name, anchors=ANCHORS)
    assert not report.reasons and anchors_corrected(report) == [5, 9]
    assert out.isfinite().all() and not torch.equal(out, plain)
    full, _ = result(table, name, budget=STEPS, correct=True)
    again, _ = result(table, name, budget=STEPS)
    assert torch.equal(full, again)


@pytest.mark.parametrize("name", BLENDED)
def test_a_pipeline_that_blends_in_what_is_known_is_left_alone(name):
    out, report = result(image, name, anchors=ANCHORS, correct=True)
    plain, _ = result(image, name, anchors=ANCHORS)
    assert torch.equal(out, plain) and not anchors_corrected(report)
    left = {why for _, why in report.reasons if "not corrected" in why}
    assert left == {"the cell before is not corrected: the state was changed between the steps"}


def test_remove_leaves_the_scheduler_as_it_was():
    """With a scheduler that stores outputs, which the correction has moved."""
    pipe, kwargs = video.PIPELINES["WanPipeline"]()
    kwargs = {**kwargs, "num_inference_steps": STEPS}

    def run() -> Tensor:
        return image.tensor(pipe(**{**kwargs, "generator": torch.Generator().manual_seed(0)}))

    plain = run()
    before = set(vars(pipe.scheduler))
    handle = accelerate(pipe, anchors=ANCHORS, correct=True)
    run()
    assert handle.report is not None and anchors_corrected(handle.report) == [5, 9]
    handle.remove()
    assert set(vars(pipe.scheduler)) == before and torch.equal(run(), plain)
