"""Quality inside a ComfyUI server: our fruit model, every sampler, beside EasyCache and LazyCache.

    python benchmarks/comfyui.py --server PATH --python PY        (writes benchmarks/comfyui.md)

PATH is a ComfyUI, PY the Python that runs it, with geoshrink and geoshrink-bench installed. Every
number is PSNR in dB to the full run of the same sampler from the same noise. Rivals have no budget:
their thresholds are tuned, and the others get as many calls as each of them took.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "comfyui" / "tests"))
from support.checks import ACCELERATED  # noqa: E402
from support.graphs import Graph  # noqa: E402
from support.runner import Runner  # noqa: E402

STEPS, CFG, BATCH = 50, 3.0, 4
TUNED_ON = ("Banana 1", "Corn 1")
FRUITS = ("Kiwi 1", "Strawberry 1", "Pineapple 1", "Cauliflower 1")
RIVALS = ("EasyCache", "LazyCache")
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.2, 2.0, 3.0)
WINDOWS = ((0.15, 0.95), (0.05, 0.95), (0.05, 1.0), (0.15, 1.0), (0.3, 0.95))  # start, end percent
CALLS = (10, 15)  # of the table of samplers


class Contest(NamedTuple):
    """PSNR of one fruit with as many calls as a rival took."""

    fruit: str
    calls: int
    theirs: float
    direct: float
    ours: float


class Bench:
    """Samplings of the demo model; what was run is kept in a file, and not run again."""

    def __init__(self, comfy: Runner, kept: Path):
        self.comfy, self.kept = comfy, kept
        self.known: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
        self.full: dict[tuple, Tensor] = {}
        self.where: str = comfy.client.get("/system_stats")["devices"][0]["name"]

    def sample(
        self, fruit: str, sampler: str, steps: int, node: str = "", **words: Any
    ) -> tuple[Tensor, int]:
        """(latents, guided evaluations) of one sampling."""
        graph = Graph()
        loaded = graph.add("GeoShrinkDemoModel")
        model = graph.add(node, model=loaded, **words) if node else loaded
        model = graph.add("TestCount", model=model, name="counts")  # below whatever skips
        prompts = graph.add("GeoShrinkDemoClass", fruit_name=fruit)
        latent = graph.add(
            "KSampler",
            model=model,
            positive=prompts,
            negative=[prompts[0], 1],
            latent_image=graph.add("GeoShrinkDemoLatent", batch_size=BATCH),
            seed=7,
            steps=steps,
            cfg=CFG,
            sampler_name=sampler,
            scheduler="sgm_uniform",
            denoise=1.0,
        )
        graph.add("TestSave", latent=latent, name="latent")
        graph.add("TestCounts", latent=latent, name="counts")
        done = self.comfy.queue(graph.prompt)
        if not done.ok:
            raise RuntimeError(f"{node or 'plain'} {words} with {sampler}: {done.result.message}")
        return done.latent, done.runs[-1]["network"]

    def score(
        self, fruit: str, sampler: str, steps: int, node: str = "", **words: Any
    ) -> tuple[float, int]:
        """(PSNR to the full run, evaluations)."""
        key = json.dumps([self.comfy.version, fruit, sampler, steps, node, words])
        if key not in self.known:
            if (fruit, sampler) not in self.full:
                self.full[fruit, sampler] = self.sample(fruit, sampler, STEPS)[0]
            made, calls = self.sample(fruit, sampler, steps, node, **words)
            self.known[key] = psnr(made, self.full[fruit, sampler]), calls
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            self.kept.write_text(json.dumps(self.known))
        db, calls = self.known[key]
        return db, calls

    def tuned(self, rival: str) -> list[dict[str, float]]:
        """The settings that nothing beats on the fruits of calibration: fewer calls, or closer."""
        tried = []
        settings = [(t, *window) for t in THRESHOLDS for window in WINDOWS]
        for threshold, start, end in tqdm(settings, desc=f"tuning {rival}"):
            words = dict(reuse_threshold=threshold, start_percent=start, end_percent=end)
            own = [self.score(f, "euler", STEPS, rival, **words, verbose=False) for f in TUNED_ON]
            tried.append((mean([calls for _, calls in own]), mean([db for db, _ in own]), words))
        tried = sorted((one for one in tried if one[0] < STEPS), key=lambda one: (one[0], -one[1]))
        best: list[tuple[float, float, dict[str, float]]] = []
        for one in tried:
            if not best or one[1] > best[-1][1]:
                best.append(one)
        return [words for _, _, words in best]

    def contests(self, rival: str) -> Iterator[tuple[dict[str, float], list[Contest]]]:
        """Each tuned setting of a rival: on every fruit, the others with as many calls."""
        for words in tqdm(self.tuned(rival), desc=rival):
            made = []
            for fruit in FRUITS:
                theirs, calls = self.score(fruit, "euler", STEPS, rival, **words, verbose=False)
                if calls < STEPS:
                    direct, _ = self.score(fruit, "euler", calls)
                    ours, spent = self.score(fruit, "euler", STEPS, "GeoShrink", budget=calls)
                    assert spent == calls, (spent, calls)
                    made.append(Contest(fruit, calls, theirs, direct, ours))
            if made:
                yield words, made

    def samplers(self) -> list[list[str]]:
        """One row for each sampler that is accelerated."""
        rows, fruit = [], FRUITS[0]
        have = self.comfy.choices("KSampler", "sampler_name")
        for sampler in tqdm([name for name in have if name in ACCELERATED], desc="samplers"):
            row = [sampler]
            for calls in CALLS:
                direct, _ = self.score(fruit, sampler, calls)
                ours, spent = self.score(fruit, sampler, STEPS, "GeoShrink", budget=calls)
                assert spent == calls, (sampler, spent, calls)
                row += [f"{direct:.1f}", f"{ours:.1f}", f"{ours - direct:+.1f}"]
            rows.append(row)
        return sorted(rows, key=lambda row: float(row[3]))


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def psnr(made: Tensor, full: Tensor) -> float:
    """Of pictures in [−1, 1]: the mean over the batch."""
    error = ((made.clamp(-1, 1) - full.clamp(-1, 1)) / 2).square().flatten(1).mean(1)
    return float((-10 * error.clamp_min(1e-10).log10()).mean())


def table(head: list[str], rows: list[list[str]], words: int) -> str:
    lines = [head, ["---"] * words + ["--:"] * (len(head) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(bench: Bench) -> str:
    rows, gains, behind = [], [], []
    for rival in RIVALS:
        for words, made in bench.contests(rival):
            setting = " ".join(f"{value:g}" for value in words.values())
            calls = [one.calls for one in made]
            numbers = [
                mean([one.theirs for one in made]),
                mean([one.direct for one in made]),
                mean([one.ours for one in made]),
            ]
            least = min(one.ours - one.theirs for one in made)
            cells = [f"{min(calls)} to {max(calls)}", *(f"{n:.1f}" for n in numbers)]
            rows.append([rival, setting, *cells, f"{least:+.1f}"])
            gains += [one.ours - one.theirs for one in made]
            behind += [f"{rival} {setting} {one.fruit}" for one in made if one.ours < one.theirs]
    samplers = bench.samplers()
    slower = sorted({row[0] for row in samplers for gain in (row[3], row[6]) if float(gain) < 0})
    names = [f"{word}, {calls}" for calls in CALLS for word in ("direct", "geoshrink", "gain")]
    columns = ["rival", "threshold, start, end", "calls", "rival’s", "direct", "geoshrink"]
    where = bench.known.setdefault("where", bench.where)
    lost = ": " + ", ".join(behind) if behind else ""
    span = f"{min(gains):.1f} to {max(gains):.1f} dB ahead, {mean(gains):.1f}"
    count = len(THRESHOLDS) * len(WINDOWS)
    return f"""# Inside ComfyUI {bench.comfy.version}

Our fruit model as a MODEL in a running server ({where}), {STEPS} steps, cfg {CFG:g}, shift 3,
sgm_uniform, {BATCH} pictures of each fruit. PSNR in dB to the full run of the same sampler from the
same noise. `python benchmarks/comfyui.py --server PATH --python PY`

**Losses.** Behind a rival with as many calls in {len(behind)} of {len(gains)} contests{lost}.
Behind direct step reduction: {", ".join(slower) or "with no sampler"}. This is one model, and ours:
what yours gains, [GeoShrink Compare](../docs/comfyui.md) shows.

## EasyCache and LazyCache, euler

They have thresholds in place of a budget. Threshold, start and end percentage were tuned on other
fruits ({", ".join(TUNED_ON)}; of {count} settings those that nothing beats are shown); nothing of
ours was. Direct step reduction and geoshrink get as many calls as the rival took. EasyCache writes
into its input, which spoils models in float32; the demo model hands it a copy, so it is shown as it
is in half precision. geoshrink is {span} in the mean.

Means over {len(FRUITS)} fruits ({", ".join(FRUITS)}); "least" is the smallest lead on one of them.

{table([*columns, "least lead"], rows, 2)}

## Samplers

{FRUITS[0]}, with {CALLS[0]} and {CALLS[1]} calls; the smallest gains first. A sampler that adds
noise draws other noise where its steps are others, so that direct step reduction makes another
picture; ours has the steps of the full run, and its noise.

{table(["sampler", *names], samplers, 1)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality inside a ComfyUI server.")
    parser.add_argument("--server", type=Path, required=True, help="the folder of a ComfyUI")
    parser.add_argument("--python", type=Path, required=True, help="the Python that runs it")
    parser.add_argument("--out", type=Path, default=HERE / "comfyui.md")
    parser.add_argument("--kept", type=Path, default=HERE.parent / "cells" / "comfyui.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as base,
        Runner(args.server, args.python, Path(base)) as comfy,
    ):
        args.out.write_text(page(Bench(comfy, args.kept)), encoding="utf-8")


if __name__ == "__main__":
    main()
