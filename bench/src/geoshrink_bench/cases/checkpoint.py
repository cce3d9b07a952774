"""A prompt and a seed in a checkpoint of the paper: its case, and the cells of its suite.

A cell is one sample of one row. It holds what the run took and every score; what it made lies
beside it, so that a metric whose weights come later, or a tool with an environment of its own,
finds it.

A rival's session counts the stages by the calls of its velocity. Here the pipeline is the solver:
as a stage begins the session's velocity is called with nothing to evaluate, and what it does inside
the network happens as the pipeline calls its transformer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from geoshrink import __version__
from geoshrink.compare.inputs import DTYPES, check_device
from geoshrink.files import digest_of_folder
from geoshrink.grid import Grid
from geoshrink.hosts import Handle, accelerate

from ..lab import Lab, Spec, device_name
from ..methods.base import Case, Method, Outcome
from ..methods.direct import Again
from ..methods.stack import stack_of
from ..metrics.base import Skipped
from ..paper import prompts as prompting
from ..paper.columns import COLUMNS, Each, Tools, Whole
from ..paper.host import Host
from ..paper.hosts import HOSTS
from ..paper.prompts import Prompt, spare
from ..samples import Sample
from ..schema import one_of
from ..score import IDENTICAL
from ..store import Store, name_of
from ..words import Row
from .checkpoint_suite import FULL, Cells, CheckpointSuite, sample_path

TRAINING_SEED, TRAINING_PROMPTS = 9000, 4  # that methods are calibrated on
WARM_UP = 4  # evaluations of the run before the first that is timed


@dataclass(frozen=True)
class CheckpointCase(Case):
    """One sample in a pipeline's own loop."""

    host: Host
    suite: CheckpointSuite
    prompt: Prompt
    seed: int
    costs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def steps(self) -> int:
        return self.host.stages(self.suite.steps)

    @property
    def labels(self) -> list[str]:
        return [self.prompt.text]

    @property
    def network(self) -> nn.Module:
        """The transformer, for caches that act on its blocks."""
        kind = self.host.kind
        if not self.host.blocks:
            raise Skipped(f"it acts on the blocks of diffusers' transformers: {kind} has none")
        try:
            stack_of(self.host.network())
        except TypeError as error:
            raise Skipped(f"it cannot run in {kind}: {error}") from error
        return self.host.network()

    def velocity(self) -> Callable[[Any, Any], Any]:
        raise Skipped(
            "it cannot run in a pipeline's own loop: it acts on the guided output, outside the "
            "transformer"
        )

    @property
    def noise(self) -> Any:
        return self.velocity()

    @cached_property
    def full(self) -> Any:
        raise Skipped("its warm-up is tuned on models of the zoo only: give a number of stages")

    def stepping(self) -> Callable[[Any, Any], Any]:
        return lambda x, sigma: None

    def grid(self, steps: int | None = None) -> Grid:
        """The stages by their numbers: σ is the pipeline's own affair."""
        count = self.steps if steps is None else steps
        return Grid.of([float(count - i) for i in range(count + 1)])

    def sample(self, steps: int, **how: Any) -> Outcome:
        return self.host.sample(self.prompt.given, self.seed, steps, self.suite.call, **how)

    def solve(self, velocity: Callable[[Any, Any], Any]) -> Outcome:
        """One run of the pipeline; velocity is called as each stage begins."""
        made = self.sample(self.suite.steps, opened=lambda: velocity(None, None))
        if not made.forwards == made.steps == self.steps:
            raise RuntimeError(
                f"{made.forwards} forwards in {made.steps} stages of {self.steps}: a cache inside "
                "the transformer needs one in each (guidance in a second call, or another grid?)"
            )
        return made

    def plain(self, steps: int | None = None) -> Outcome:
        made = self.sample(self.suite.steps if steps is None else self.host.steps_for(steps))
        return Outcome(made, made.evaluated, steps=made.steps)

    def accelerated(self, budget: int | None, **options: Any) -> Outcome:
        handles: list[Handle] = []

        def within() -> Handle:
            handles.append(accelerate(self.host.pipe, budget, **options))
            return handles[0]

        made = self.sample(self.suite.steps, within=within)
        report = handles[0].report
        if report is None:
            raise RuntimeError("the model was not accelerated: its loop was not entered")
        return Outcome.reported(made, report)

    def run(self, method: Method, budget: int | None) -> Outcome:
        """With the decoded sample as x, and what the loop took."""
        outcome = method.run(self, budget or self.steps)
        made: Outcome = outcome.x
        return replace(
            outcome,
            x=made.x,
            steps=outcome.steps or self.steps,
            forwards=made.forwards,
            seconds=made.seconds,
        )


class Checkpoint(Lab):
    """Runs a suite of the paper.

    checkpoint   a folder as diffusers saves it, or as the model's own library loads it
    prompts      a file of prompts (paper/prompts.py), a list of them, or a folder of pictures
    clip, clap   folders of the checkpoints that those columns need
    keep         whether samples stay on disk, for tools outside and for metrics that come later
    """

    def __init__(
        self,
        suite: CheckpointSuite,
        folder: str | Path,
        checkpoint: str | Path | None = None,
        prompts: str | Path | Sequence[str] | None = None,
        device: str | None = None,
        dtype: str | None = None,
        clip: str | Path | None = None,
        clap: str | Path | None = None,
        keep: bool = True,
    ):
        check_device(device)
        one_of(DTYPES)("dtype", dtype or "bf16")
        self.suite, self.store, self.keep = suite, Store(folder), keep
        self.host, self.loaded = HOSTS[suite.host](), False
        if dtype and self.host.precision:
            raise ValueError(f"{self.host.kind} runs in {self.host.precision} only: give no dtype")
        if not checkpoint:
            raise ValueError(f"the suite needs the folder of a checkpoint: {suite.checkpoint}")
        self.checkpoint = self.host.check(checkpoint)
        if prompts is None:
            wanted = f"{suite.prompts['count']} of {suite.prompts['source']}"
            raise ValueError(f"the suite needs prompts: {wanted}")
        everything = prompting.read(prompts)
        chosen = prompting.taken(everything, suite.prompts["count"], suite.prompts["take"])
        self.host.check_prompts(chosen)
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        own = (suite.dtype or "bf16") if self.device.startswith("cuda") else "fp32"
        self.dtype = self.host.precision or dtype or own
        made = dict(dtype=self.dtype, on=device_name(self.device), version=__version__)
        made["weights"] = digest_of_folder(self.checkpoint)[:20]
        self.cells = Cells(suite, chosen, made)
        self.spare = spare(everything, chosen, TRAINING_PROMPTS)
        if suite.prompts["take"] == "all":
            self.spare = chosen[:TRAINING_PROMPTS]
        self.tools = Tools(clip, clap, self.device)
        self.methods: dict[str, tuple[Method, Spec]] = {}
        self.samples: dict[str, Sample] = {}  # of the present prompt and seed
        self.at: dict[str, tuple[Row, Prompt, int]] = {}

    def kept(self) -> dict[str, Any]:
        """What a report needs to find the cells without the checkpoint."""
        taken = [
            asdict(replace(prompt, known=prompt.picture if self.host.pictures else None))
            for prompt in self.cells.prompts
        ]
        return dict(made=self.cells.made, taken=taken)

    def specs(self) -> list[Spec]:
        specs = []
        for prompt, seed in self.cells.cases():
            for row in (FULL, *self.suite.rows):
                specs.append(self.cells.spec(row, prompt, seed))
                self.at[name_of(specs[-1])] = (row, prompt, seed)
        return specs

    def unit(self, spec: Spec, shards: int) -> Any:
        """A prompt and a seed, so that each full run is made once."""
        return [spec["prompt"], spec["seed"]]

    def cost(self, spec: Spec) -> float:
        """In model calls."""
        return float(self.at[name_of(spec)][0].budget or self.suite.steps)

    def title(self, spec: Spec) -> str:
        return self.at[name_of(spec)][0].title

    def place(self, spec: Spec) -> str:
        return f"{spec['method']}, prompt {spec['prompt']!r:.60}, seed {spec['seed']}"

    def make(self, spec: Spec) -> None:
        self.hold(spec, self.run(spec))

    def measure(self, spec: Spec) -> None:
        """The cell with every score that can be had now."""
        result = self.store.read(spec)
        assert result is not None
        wanted = [name for name in self.suite.columns if self.wants(name, result, spec)]
        for name in wanted:
            result["scores"][name] = self.score(name, spec)
        if wanted:
            self.store.write(spec, result)
        failed = [each["failed"] for each in result["scores"].values() if "failed" in each]
        if failed:
            raise ValueError("; ".join(failed))

    def wants(self, name: str, result: dict[str, Any], spec: Spec) -> bool:
        """Whether a score is to be made: it is not there, or there is none and a sample to try."""
        column, found = COLUMNS[name], result["scores"].get(name)
        if not isinstance(column, (Each, Whole)):
            return False
        if spec["method"] == FULL.method and isinstance(column, Each) and not column.alone:
            return False
        if found is None or found.get("version") != column.version:
            return True
        return "value" not in found and sample_path(self.store.folder, spec).is_file()

    def score(self, name: str, spec: Spec) -> dict[str, Any]:
        column: Any = COLUMNS[name]
        made, (_, prompt, _) = self.sample(spec), self.at[name_of(spec)]
        alone = isinstance(column, Whole) or column.alone
        full = made if alone else self.sample(self.full(spec))
        try:
            if isinstance(column, Whole):
                value: Any = column.features(made, self.tools).tolist()
            else:
                value = checked(name, column.of(made, full, prompt, self.tools))
        except Skipped as reason:
            return dict(version=column.version, skipped=str(reason))
        except Exception as error:
            return dict(version=column.version, failed=f"{name}: {type(error).__name__}: {error}")
        return dict(version=column.version, value=value)

    def full(self, spec: Spec) -> Spec:
        """The full run from the same prompt and seed."""
        return self.cells.spec(FULL, *self.at[name_of(spec)][1:])

    def sample(self, spec: Spec) -> Sample:
        """What a row made: at hand, from its file, or by a run, which leaves its scores alone."""
        if name_of(spec) not in self.samples:
            before = self.store.read(spec)
            found = Sample.load(sample_path(self.store.folder, spec)) if before else None
            self.hold(spec, found or self.run(spec, before))
        return self.samples[name_of(spec)]

    def hold(self, spec: Spec, sample: Sample) -> None:
        """At hand until another row's takes its place; the full run's for all of its prompt."""
        full = name_of(self.full(spec))
        self.samples = {name: held for name, held in self.samples.items() if name == full}
        self.samples[name_of(spec)] = sample

    def run(self, spec: Spec, before: Spec | None = None) -> Sample:
        """Writes the cell, too.

        before  the cell as it is, whose scores stay: then it is the work of the code it had
        """
        row, prompt, seed = self.at[name_of(spec)]
        self.load()
        case = CheckpointCase(self.host, self.suite, prompt, seed)
        method, said = self.method(row, spec)
        outcome = case.run(method, row.budget)
        if self.keep:
            outcome.x.save(sample_path(self.store.folder, spec))
        kept = {"scores": {}, "code": said["code"]}
        if before is not None:
            kept = {name: before[name] for name in kept if name in before}
        rest = {name: value for name, value in said.items() if name != "code"}
        self.store.write(spec, outcome.facts() | rest | kept)
        return outcome.x

    def method(self, row: Row, spec: Spec) -> tuple[Method, Spec]:
        """Made once, when it is first needed, calibrated on prompts that are not compared; where
        the suite takes all there are, on other noise for the same prompts.
        """

        def training() -> list[Case]:
            if not self.spare:
                raise Skipped(
                    f"{row.method} is calibrated on prompts that are not compared: give a file "
                    "with more than the suite takes"
                )
            return [CheckpointCase(self.host, self.suite, p, TRAINING_SEED) for p in self.spare]

        if row.title not in self.methods:
            named = {**spec, "method": Again.name} if row is FULL else spec
            budget = row.budget or self.host.stages(self.suite.steps)
            self.methods[row.title] = self.prepare(named, training, budget)
        return self.methods[row.title]

    def load(self) -> None:
        """Loads the model when it is first needed, and runs it once, untimed."""
        if not self.loaded:
            suite = self.suite
            self.host.load(self.checkpoint, self.device, self.dtype, suite.offload)
            steps = min(suite.steps, self.host.steps_for(WARM_UP))
            self.host.sample(self.cells.prompts[0].given, 0, steps, suite.call)
            self.loaded = True


def checked(name: str, value: float) -> float:
    if math.isnan(value):
        raise ValueError(f"{name} is no number")
    return IDENTICAL if value == math.inf else value
