"""Rivals that we wrote anew beside the libraries that others use: the same stages, the same values.

Only make test-all installs the libraries.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cases import small_case
from geoshrink_bench.cases.checkpoint import CheckpointCase
from geoshrink_bench.methods.dbcache import DBCache
from geoshrink_bench.methods.hicache import HiCache
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.paper import hosts
from geoshrink_bench.paper.prompts import Prompt
from geoshrink_bench.suite import read

pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]
STEPS, SEED, PROMPT = 16, 3, "a cat"


@pytest.fixture(scope="module")
def flux():
    """A tiny FLUX of three double and three single blocks, whose features change with the stage."""
    diffusers: Any = pytest.importorskip("diffusers")
    from hosts import image, text

    torch.manual_seed(0)
    parts: dict[str, Any] = {"text_encoder": text.clip_text(), "tokenizer": text.clip_tokenizer()}
    parts |= {"text_encoder_2": text.t5(), "tokenizer_2": text.tokenizer()}
    pipe = image.flux("FluxPipeline", {}, **parts)[0]
    sizes = {**pipe.transformer.config, "num_layers": 3, "num_single_layers": 3}
    pipe.transformer = diffusers.FluxTransformer2DModel.from_config(sizes).eval()
    for parameter in pipe.transformer.parameters():
        torch.nn.init.normal_(parameter.requires_grad_(False), std=0.08)
    pipe.set_progress_bar_config(disable=True)
    host, threads = hosts.Flux(), torch.get_num_threads()
    host.pipe = pipe
    torch.set_num_threads(1)
    yield host
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "method",
    [
        DBCache(0.6, front=1, warm_up=3, most=3),
        DBCache(0.4, front=2, back=1, warm_up=3),
        DBCache(0.6, front=2, back=1, warm_up=3, most=3, order=1),
        DBCache(0.6, front=1, warm_up=3, most=3, order=2),
    ],
    ids=["F1B0", "F2B1", "F2B1, order 1", "F1B0, order 2"],
)
def test_dbcache_is_that_of_cache_dit(flux, method):
    """The same stages in full, and the same picture in 8 bits."""
    cache_dit: Any = pytest.importorskip("cache_dit")
    suite = read("flux", {"steps": STEPS, "call": {"height": 32, "width": 32}})
    full, stage = [], [-1]

    def opened():
        stage[0] += 1

    middle = stack_of(flux.network()).blocks[3]
    watching = middle.register_forward_pre_hook(lambda *_: full.append(stage[0]))
    config = cache_dit.DBCacheConfig(
        Fn_compute_blocks=method.front,
        Bn_compute_blocks=method.back,
        residual_diff_threshold=method.threshold,
        max_warmup_steps=method.warm_up,
        max_continuous_cached_steps=method.most or -1,
    )
    order = method.order
    taylor = cache_dit.TaylorSeerCalibratorConfig(taylorseer_order=order) if order else None
    cache_dit.enable_cache(flux.pipe, cache_config=config, calibrator_config=taylor)
    try:
        theirs = flux.sample(PROMPT, SEED, STEPS, suite.call, opened).x
    finally:
        cache_dit.disable_cache(flux.pipe)
        watching.remove()
    ours = method.run(CheckpointCase(flux, suite, Prompt(PROMPT, "0"), SEED), 0)
    plain = flux.sample(PROMPT, SEED, STEPS, suite.call).x
    assert ours.evaluated == tuple(full) and 3 < len(full) < STEPS
    assert torch.equal(ours.x.x.part("frames"), theirs.part("frames"))
    assert not torch.equal(theirs.part("frames"), plain.part("frames"))


@pytest.mark.parametrize(("interval", "order"), [(4, 1), (4, 2), (3, 3)])
def test_hicache_is_that_of_hicache_pp(interval, order):
    """Its schedule, and what it says of a branch's output at every skipped stage. Its series takes
    in all that it is given; ours begins, as the authors', with the last stage but one of warm-up.
    """
    hicache: Any = pytest.importorskip("hicache_pp")
    case, warm_up = small_case(steps=14), 3
    outputs: list[Any] = []
    branch = stack_of(case.network).branches[1][0]
    branch.register_forward_hook(lambda module, args, output: outputs.append(output))
    evaluated = HiCache(interval, order, warm_up=warm_up).run(case, 0).evaluated
    state = hicache.hicache_init(14, interval, order, first_enhance=warm_up, sigma=0.5)
    full = []
    for stage, output in enumerate(outputs):
        state["step"] = stage
        if hicache.hicache_decide(state) == "forecast":
            said = hicache.hicache_forecast(state)
            assert torch.allclose(output, said, rtol=0, atol=2e-6 * float(said.abs().max()))
            continue
        full.append(stage)
        if stage >= warm_up - 2:
            hicache.hicache_update_derivatives(state, output)
    assert tuple(full) == evaluated and len(full) < len(outputs) == 14
