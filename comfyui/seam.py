"""Where geoshrink meets ComfyUI: one wrapper around a sampling, one around each guided output.

OUTER_SAMPLE sees a whole sampling: there the second wrapper is put on a copy of the guider's
options, and taken off again however the sampling ends. PREDICT_NOISE sees what the sampler
consumes, denoised x after guidance: at a skipped stage the model is not run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import comfy.model_patcher
import torch
from comfy.patcher_extension import WrappersMP, add_wrapper_with_key
from torch import Tensor

from geoshrink import Run

from . import regimes
from .options import Options
from .samplers import Refused, Trial, name_of, try_out

KEY = "geoshrink"
ARGUMENTS = ("noise", "latent_image", "sampler", "sigmas", "denoise_mask")  # of a sampling
OTHERS = (
    "easycache", "lazycache", "teacache", "rel_l1_thresh", "magcache", "wavespeed", "taylorseer",
    "cache_dit", "cachedit", "fbcache",
)  # fmt: skip
FEW = 8  # steps from which on a sampling is accelerated
MASK, OUTSIDE = "the sampler's state is behind a mask", "another node wraps the outputs"
REASONS = 3  # of the report that are shown on the node
OFF = 1e-3  # of σ: a call is at the stage that it should be
logger = logging.getLogger("geoshrink")


class Accelerated:
    """What the GeoShrink node leaves in a model: its options, and what the latest run was like.

    An object, since ComfyUI copies dicts and lists whenever it clones a model.
    """

    def __init__(self, options: Options, tell: Callable[[str], None], before: str = ""):
        self.options, self.tell, self.before = options, tell, before
        self.text = self.full = "nothing was sampled yet"
        self.anchors: tuple[int, ...] = ()
        self.steps = self.calls = 0
        self.exact = False  # nothing was predicted in the latest sampling

    def attach(self, model: Any) -> Any:
        """A clone of the model that is accelerated."""
        model = model.clone()
        model.remove_wrappers_with_key(WrappersMP.OUTER_SAMPLE, KEY)
        model.model_options.setdefault("transformer_options", {})[KEY] = self
        model.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, KEY, self.sample)
        return model

    def sample(self, executor: Any, *args: Any, **kwargs: Any) -> Any:
        """Around a whole sampling: (noise, latent, sampler, sigmas, …)."""
        guider = executor.class_obj
        own = guider.model_options
        given = dict(zip(ARGUMENTS, args)) | kwargs
        session = Session(self.options, guider, given)
        options = comfy.model_patcher.create_model_options_clone(own)
        add_wrapper_with_key(
            WrappersMP.PREDICT_NOISE, KEY, session.predict, options, is_model_options=True
        )
        guider.model_options = options
        ended = False
        try:
            result = executor(*args, **kwargs)
            ended = True
            return result
        finally:
            guider.model_options = own
            self.close(session, ended)

    def close(self, session: Session, ended: bool) -> None:
        """Says on the node what the sampling was like, and lets go of its tensors."""
        try:
            text, full = session.summary(ended)
        except Exception as error:  # the picture is there: it is not lost for this
            text = full = f"there is no report ({type(error).__name__}: {error})"
        self.steps, self.calls, self.anchors = session.steps, session.evaluations, session.anchors
        self.exact = self.calls >= session.calls
        session.forget()
        self.text, self.full = (said([self.before, one]) for one in (text, full))
        logger.info("GeoShrink: %s", self.text)
        self.tell(self.text)


def accelerated(model: Any) -> Accelerated | None:
    """What a GeoShrink node has left in a model."""
    found = model.model_options.get("transformer_options", {}).get(KEY)
    return found if isinstance(found, Accelerated) else None


def without(model: Any) -> Any:
    """A clone of the model that is not accelerated."""
    model = model.clone()
    model.remove_wrappers_with_key(WrappersMP.OUTER_SAMPLE, KEY)
    model.model_options.get("transformer_options", {}).pop(KEY, None)
    return model


class Session:
    """One sampling. It is prepared at the first call, when the guider has its model and prompts."""

    def __init__(self, options: Options, guider: Any, given: dict[str, Any]):
        self.options, self.sampler = options, given.get("sampler")
        self.guider: Any = guider
        self.sigmas: Any = given.get("sigmas")
        self.masked = given.get("denoise_mask") is not None
        self.outside = wrapped_outside(guider.model_options)
        self.steps = len(self.sigmas) - 1 if isinstance(self.sigmas, Tensor) else 0
        self.calls = self.evaluations = 0
        self.anchors: tuple[int, ...] = ()  # stages at which the model was run
        self.exact = ""  # why every stage is exact
        self.run: Run | None = None
        self.trial: Trial | None = None
        self.euler = False
        self.notes: list[str] = []
        self.results: list[Tensor] = []  # of ours that the sampler keeps, the latest first
        self.off: Tensor | None = None
        self.windows: list[tuple[float, float]] = []  # that the plan does not know

    def predict(self, executor: Any, x: Tensor, timestep: Tensor, *rest: Any, **kw: Any) -> Tensor:
        """The denoised x of one call: the model's, or predicted."""
        n, self.calls = self.calls, self.calls + 1
        made: list[Tensor] = []
        asked = False

        def evaluate() -> Tensor:
            nonlocal asked
            if not made:
                asked = True
                self.evaluations += 1
                self.anchors = (*self.anchors, n)
                made.append(executor(x, timestep, *rest, **kw))
            return made[0]

        if n == 0:
            self.prepare()
        if self.run is None:
            return evaluate()
        try:
            return self.stage(n, x, timestep, evaluate)
        except Exception as error:
            if asked and not made:  # the model's own, or an interrupt
                raise
            self.run.reset()
            why = (
                f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            self.run, self.exact = None, f"from step {n} on: {why}"
            return evaluate()

    def prepare(self) -> None:
        """Makes the run, or says why there is none."""
        try:
            self.check()
            data = self.options.predicts_data(name_of(self.sampler))
            self.trial = try_out(self.sampler, self.sigmas, self.guider, data)
            self.euler = self.trial.euler
            levels = levels_of(self.guider.inner_model.model_sampling, self.trial.sigmas)
            switches = regimes.switches(self.guider, self.trial.sigmas[:-1])
            behind = MASK if self.masked else OUTSIDE if self.outside else ""
            self.run = self.options.run(self.trial, levels, switches, behind, self.guider)
            self.windows = list(regimes.windows_of(self.guider)) if self.options.plan else []
            self.notes += self.options.notes(self.trial, behind)
        except Exception as error:
            self.exact = in_words(error)

    def check(self) -> None:
        """What is known before anything is tried."""
        for name in names_in(self.guider.model_options):
            for word in OTHERS:
                if word in name.lower():
                    shown = name if word != "rel_l1_thresh" and "/" not in name else "TeaCache"
                    raise Refused(
                        f"{shown} is in the same chain and skips calls, too: take one of them out"
                    )
        if not isinstance(self.sigmas, Tensor):
            raise Refused("there is no grid of σ")
        if not bool((self.sigmas[1:] < self.sigmas[:-1]).all()):
            raise Refused("σ does not fall at every step")
        if self.steps < FEW:
            raise Refused(f"{self.steps} steps leave nothing to skip (from {FEW} steps on)")

    def stage(self, n: int, x: Tensor, timestep: Tensor, evaluate: Callable[[], Tensor]) -> Tensor:
        """Stage n of the run."""
        run, trial = self.run, self.trial
        assert run is not None and trial is not None
        if timestep.ndim > 1 or timestep.numel() not in (1, len(x)):
            raise ValueError(f"σ comes as {tuple(timestep.shape)}, not one for each sample")
        wide = timestep.reshape(-1, *[1] * (x.ndim - 1)).to(x.dtype)
        if n == 0 or self.outside:  # waits for the device
            self.check_level(n, float(timestep.flatten()[0]))
        if n < self.steps:
            off = (timestep.flatten()[0] / trial.sigmas[n] - 1).abs()
            self.off = off if self.off is None else torch.maximum(self.off, off)
        regime = regimes.guidance(self.guider)
        if self.windows and n < self.steps:
            regime = regime, regimes.key_at(self.windows, trial.sigmas[n])
        if not run.queries(n, x, regime=regime):
            result = x - wide * run.predict(n, x)
            self.keep(result)
            return result
        denoised = evaluate()
        if not same_kind(x, denoised):
            run.reset()
            self.run, self.exact = None, f"the model returned {kind(denoised)} for x of {kind(x)}"
            return denoised
        d = (x - denoised) / wide
        if not self.reaches:
            new, moved = run.observe(n, d, x), [x]
        else:
            missing = [None] * (len(run.stored(0)) - len(self.results))
            state = [x, *self.results, *missing]
            new, (moved,) = run.observe_state(n, d, x, [state])
        result = denoised
        if new is not d or moved[0] is not x:
            self.move(x, moved)
            result = x - wide * new
        self.keep(result)
        return result

    def check_level(self, n: int, level: float) -> None:
        """Refuses to predict where the calls are not those of the trial."""
        assert self.trial is not None
        expected = self.trial.sigmas[n] if n < self.steps else 0.0
        if abs(level - expected) > OFF * expected:
            raise ValueError(f"the call is at σ = {level:.4g}, not {expected:.4g}")

    @property
    def reaches(self) -> bool:
        """Whether the state is moved in place: then the output need not carry the correction."""
        return self.run is not None and self.run.corrects and not self.euler

    def move(self, x: Tensor, moved: Sequence[Tensor | None]) -> None:
        """Puts the corrected state where the sampler has it."""
        for place, tensor in zip([x, *self.results], moved):
            if tensor is not None and tensor is not place:
                place.copy_(tensor)

    def keep(self, result: Tensor) -> None:
        most = len(self.run.stored(0)) if self.run is not None and self.reaches else 0
        self.results = [result, *self.results][:most]

    def forget(self) -> None:
        if self.run is not None:
            self.run.reset()
        self.results, self.off, self.guider = [], None, None

    def summary(self, ended: bool) -> tuple[str, str]:
        """What is said on the node, and what the report node has."""
        if self.run is None or not self.calls:
            why = self.exact or "the sampler never asked for an output"
            few = self.evaluations < self.calls
            text = (
                f"{self.evaluations} of {self.calls} calls exact" if few else "every call was exact"
            )
            return f"{text}: {why}", f"{text}: {why}"
        report = self.run.report
        notes = list(self.notes)
        if self.run.learns and len(self.anchors) == self.steps:
            notes.append("every call was exact: the samplings after it are placed by this one")
        if not ended:
            notes.insert(0, f"the sampling was stopped in its step {self.calls} of {self.steps}")
        if self.off is not None and float(self.off) > OFF:
            notes.append("the sampler called at other σ than it did when it was tried out")
        lines = [report.summary()]
        if report.predicted:
            lines.append(f"{report.estimate}, in the latents")
            lines += [report.doubt] if report.doubt else []
        lines += [f"step {n}: {why}" for n, why in report.reasons[:REASONS]]
        return said([*lines, *notes]), "\n".join([str(report), *notes])


def levels_of(model_sampling: Any, sigmas: Sequence[float]) -> dict[str, Any]:
    """What x is at σ, as options of a plan: (1 − σ)·x₀ + σ·ε of flows, x₀ + σ·ε elsewhere."""
    one, none = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
    at = [s for s in (*sigmas[:1], sigmas[len(sigmas) // 2]) if s > 0]
    sampling = model_sampling
    data = [float(sampling.noise_scaling(torch.tensor([s]), none.clone(), one.clone())) for s in at]
    noise = [
        float(sampling.noise_scaling(torch.tensor([s]), one.clone(), none.clone())) for s in at
    ]
    if all(abs(b - s) <= OFF * s for b, s in zip(noise, at)):
        if all(abs(a - (1 - s)) <= OFF for a, s in zip(data, at)) and max(sigmas) <= 1:
            return {"prediction": "flow", "data": 0.0}
        if all(abs(a - 1) <= OFF for a in data):
            return {"prediction": "epsilon", "alphas": "ve"}
    name = type(sampling).__name__
    raise Refused(f"it is not known what the noise levels of {name} say about the data")


def names_in(options: dict[str, Any]) -> list[str]:
    """The names that other nodes have left in a model's options."""
    own = options.get("transformer_options", {})
    function = options.get("model_function_wrapper")
    names = [*own, *(key for some in own.get("wrappers", {}).values() for key in some)]
    names += [getattr(function, "__module__", ""), getattr(function, "__qualname__", "")]
    return sorted({str(name) for name in names if name is not None})


def wrapped_outside(options: dict[str, Any]) -> bool:
    """Whether another node stands between the sampler and our wrapper."""
    wrappers = options.get("transformer_options", {}).get("wrappers", {})
    kinds = (WrappersMP.PREDICT_NOISE, WrappersMP.SAMPLER_SAMPLE)
    return any(
        key != KEY and some for kind in kinds for key, some in wrappers.get(kind, {}).items()
    )


def in_words(error: Exception) -> str:
    return f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def said(lines: Sequence[str]) -> str:
    """Lines that can be read where line breaks are lost, as on some nodes."""
    return ".\n".join(line.rstrip(".") for line in lines if line)


def same_kind(x: Tensor, y: Any) -> bool:
    return isinstance(y, Tensor) and (x.shape, x.dtype, x.device) == (y.shape, y.dtype, y.device)


def kind(t: Any) -> str:
    return (
        f"{tuple(t.shape)} {t.dtype} on {t.device}" if isinstance(t, Tensor) else type(t).__name__
    )
