"""The words of the GeoShrink node, and the run that they make of a sampling."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geoshrink
from geoshrink import Learning, Plan, Run
from geoshrink.learning.fingerprint import modules_in

from .regimes import guidance
from .samplers import NOISY, Trial

AUTO, ON, OFF = "auto", "on", "off"
SPACES = (AUTO, "output", "data")
CORRECTS = (AUTO, ON, OFF)
RULES = (AUTO, "signed time", "time", "linear", "chordal", "hold")

#: What a plan leaves nothing to choose of; speedup is what it is.
DECIDED = ("learn", "budget", "target_db", "space", "rule", "correct")

#: What was learned since ComfyUI was started; models are told apart by their weights.
LEARNED = Learning()


def kinds_of(guider: Any) -> list[tuple]:
    """Which prompts there are, and which of them come with a ControlNet or a hook."""
    conds = (getattr(guider, "conds", None) or {}).items()
    marks = ("control", "hooks", "area", "mask", "gligen")
    return [
        (k, *(tuple(m for m in marks if c.get(m) is not None) for c in v or ())) for k, v in conds
    ]


def patches_of(guider: Any) -> str:
    """LoRAs, by their strengths: a model that is not wholly on the device has them on the side."""
    patches = getattr(getattr(guider, "model_patcher", None), "patches", None) or {}
    strengths = sorted((str(key), *((p[0], p[2]) for p in some)) for key, some in patches.items())
    return hashlib.sha256(repr(strengths).encode()).hexdigest()[:8] if strengths else ""


@dataclass(frozen=True)
class Options:
    """How many calls, and how the others are predicted; 0, "" and "auto" leave it to us."""

    speedup: float = 3.0
    learn: bool = False
    budget: int = 0
    target_db: float = 0.0
    plan: str = ""
    space: str = AUTO
    rule: str = AUTO
    correct: str = AUTO

    def __post_init__(self) -> None:
        """Refuses what cannot be, before anything is sampled."""
        if self.plan.strip():
            if self.learn:
                raise ValueError(
                    f"learn and plan={self.plan!r} both place the calls: leave one out"
                )
            self.planned()
            return
        if self.learn and self.rule != AUTO:
            raise ValueError(
                f"learn goes with the default's rule: leave rule={self.rule!r} at auto"
            )
        grid = [1 - n / 50 for n in range(51)]
        Plan.of(grid, **self.counted(50), **self.asked())

    def counted(self, steps: int) -> dict[str, Any]:
        """How many calls, for so many steps."""
        if self.budget and self.target_db:
            raise ValueError(
                f"budget={self.budget} and target_db={self.target_db:g} both say how many calls: "
                "set one of them to 0"
            )
        if self.target_db:
            return {"target_db": self.target_db}
        return {"budget": min(self.budget, steps)} if self.budget else {"speedup": self.speedup}

    def asked(self) -> dict[str, Any]:
        """The options of a plan that were asked for."""
        asked: dict[str, Any] = {}
        if self.space != AUTO:
            asked["space"] = self.space
        if self.rule != AUTO:
            asked["rule"] = self.rule
        if self.correct != AUTO:
            asked["correct"] = self.correct == ON
        return asked

    def planned(self) -> Plan:
        """The plan that was given: its file, or its text."""
        given = self.plan.strip()
        if given.startswith("{"):
            return Plan.from_json(given)
        if not Path(given).is_file():
            raise ValueError(
                f"plan={given!r}: there is no such file (GeoShrink Profile writes one)"
            )
        return Plan.from_json(Path(given).read_text(encoding="utf-8"))

    def run(
        self,
        trial: Trial,
        levels: dict[str, Any],
        switches: tuple[int, ...],
        behind: str,
        guider: Any,
    ) -> Run:
        """The run of a sampling.

        behind   why the sampler's state cannot be moved in place, if so
        """
        steps = len(trial.sigmas) - 1
        reachable = trial.euler or (trial.response is not None and not behind)
        if self.plan.strip():
            plan = geoshrink.plan.given_plan(self.planned(), {}, trial.sigmas)
        else:
            asked = self.asked()
            if trial.noisy:  # corrected, they were 3 to 6 dB further from the full run
                asked.setdefault("space", "data")
                asked.setdefault("correct", False)
            if not reachable:
                asked["correct"] = False
            plan = Plan.of(trial.sigmas, **self.counted(steps), **asked, **levels, regimes=switches)
        learns = self.learn and not trial.noisy
        run = Run(plan=plan, learn=self.seat(trial, guider) if learns else None)
        if trial.euler:
            run.know("euler")
        elif trial.response is not None and reachable:
            run.know([trial.response])
        else:
            run.know(None, None, trial.why or behind)
        return run

    def predicts_data(self, sampler: str) -> bool:
        """Whether denoised x is predicted: noise between the stages turns d, not the data."""
        if self.plan.strip():
            return self.planned().space == "data"
        return self.space == "data" or (self.space == AUTO and sampler in NOISY)

    def seat(self, trial: Trial, guider: Any) -> Any:
        """Where the runs of this model learn."""
        parts = (
            trial.name,
            type(guider).__name__,
            guidance(guider),
            kinds_of(guider),
            patches_of(guider),
        )
        return LEARNED.at(
            modules_in(guider.inner_model.diffusion_model), ", ".join(map(str, parts))
        )

    def notes(self, trial: Trial, behind: str) -> list[str]:
        """What a user should know besides the report."""
        steps, notes = len(trial.sigmas) - 1, []
        short = trial.name.removeprefix("sample_")
        if trial.noisy:
            space = "data" if trial.data else "output"
            notes.append(f"{short} adds noise at every step: predicted in {space} space")
            notes += ["nothing is learned from samplers that add noise"] if self.learn else []
        if self.correct == ON and not trial.euler and (trial.why or behind):
            notes.append(f"cells are not corrected: {trial.why or behind}")
        if self.budget > steps:
            notes.append(
                f"a budget of {self.budget} is more than the {steps} steps: every call is exact"
            )
        return notes
