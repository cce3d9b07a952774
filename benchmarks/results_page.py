"""docs/results.md and the charts of calls, from the cells of benches and the pages of this folder.

    mkdir -p cells && tar xf benchmarks/cells.tar.xz -C cells
    python benchmarks/results_page.py cells/rivals cells/first cells/foreign            # prints it
    python benchmarks/results_page.py cells/rivals cells/first cells/foreign --write    # writes it

With --write the tables of README.md are made anew, too. What stands between <!-- begin NAME -->
and <!-- end NAME --> on a page is made; the rest is kept. Nothing is sampled here: every number
comes from cells, or from a page that names its command.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoshrink.files import write_whole
from geoshrink_bench.code import CURRENT, STALE, UNKNOWN
from geoshrink_bench.page import drawing
from geoshrink_bench.report import load
from geoshrink_bench.report.about import listed
from geoshrink_bench.report.calls import curves
from geoshrink_bench.report.calls_tables import calls_by_method, calls_chart, calls_needed
from geoshrink_bench.report.contests import DIRECT, OURS, PUBLISHED, contest
from geoshrink_bench.report.overview import EVEN, Loss, against_rivals, digits_for, duels
from geoshrink_bench.report.results import Results, Setting
from geoshrink_bench.words import DONE, FAILED
from geoshrink_bench.zoo.recipes import RECIPES

sys.path.insert(0, str(Path(__file__).parent))

import results_excerpts as excerpts
import results_forms as forms
import results_methods as methods
import results_readme as front_page
from results_excerpts import piped

ROOT = Path(__file__).parents[1]
PAGE, PLOTS, README = ROOT / "docs/results.md", ROOT / "docs/plots", ROOT / "README.md"
WORST = 6  # losses that are shown
MOST = 0.5  # of the contests: more than that are most
#: What the row says, its setting as far as it is needed, budget, metric.
ROWS: tuple[tuple[str, dict[str, Any], int, str], ...] = (
    ("pictures, 10 of 50", dict(model="fruit", guidance=3.0, shift=3.0), 10, "PSNR"),
    ("pictures from latents, 10 of 28", dict(model="fruit-latent"), 10, "PSNR"),
    ("motion, 10 of 50", dict(model="motion", guidance=5.0, shift=1.0), 10, "MPJPE"),
    (
        "3-D objects, guidance in an interval, 10 of 25",
        dict(model="objects", interval=[0.5, 0.95]),
        10,
        "SDF error",
    ),
    ("speech, 15 of 40", dict(model="digits-audio", guidance=4.5, shift=1.0), 15, "SI-SDR"),
    ("picture with speech, 15 of 30", dict(model="digits-av", guidance=3.0), 15, "PSNR"),
    ("its sound, 15 of 30", dict(model="digits-av", guidance=3.0), 15, "SI-SDR"),
    ("film, 10 of 50", dict(model="fruit-video", guidance=5.0, shift=7.0), 10, "PSNR"),
)
CHARTED = dict(model="fruit", guidance=3.0, shift=3.0)
#: Not rivals: a contest with these alone says nothing of any.
USUAL = (DIRECT, PUBLISHED)
#: Above the table of variants that results_methods.in_part gives.
IN_PART = (
    "Variants that have run in fewer contests and were nearer there than the one above; mean leads "
    "over direct in dB, all in the same contests, those that each of these methods has run:"
)
Lines = list[list[str]]


@dataclass(frozen=True)
class Evidence:
    """Every folder by itself; those with our default on our models; those on models of others."""

    each: list[Results]
    ours: Results
    others: Results | None


Parts = dict[str, Callable[[Evidence], str]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="docs/results.md, from the cells of benches.")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of cells")
    parser.add_argument(
        "--write", action="store_true", help="to docs/results.md, docs/plots and README.md"
    )
    args = parser.parse_args(argv)
    try:
        found = gather(args.folders)
        text = page(PAGE.read_text(encoding="utf-8"), found)
        front = page(README.read_text(encoding="utf-8"), found, FRONT) if args.write else ""
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if not args.write:
        print(text, end="")
        return
    write_whole(PAGE, text)
    write_whole(README, front)
    for name, svg in charts(found).items():
        write_whole(PLOTS / name, svg)


def gather(folders: Sequence[Path]) -> Evidence:
    each = [load([folder]) for folder in folders]
    own: list[Results] = []
    foreign: list[Results] = []
    for results in each:
        if any(cell.label == OURS and cell.status == DONE for cell in results.cells):
            ours = {setting.model for setting in results.settings} <= set(RECIPES)
            (own if ours else foreign).append(results)
    if not own:
        names = ", ".join(map(str, folders))
        raise ValueError(f"{names}: no cells of {OURS} on models of the zoo")
    return Evidence(each, joined(own), joined(foreign) if foreign else None)


def joined(each: list[Results]) -> Results:
    return each[0] if len(each) == 1 else load([results.suites[0][0] for results in each])


def page(text: str, found: Evidence, parts: Parts | None = None) -> str:
    """The page with every part made anew; docs/results.md, unless other parts are given."""
    parts = PARTS if parts is None else parts
    where = PAGE if parts is PARTS else README
    for name, make in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{where} must have {begin} and {end} once each")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make(found)}\n{end}{rest.partition(end)[2]}"
    unknown = set(re.findall(r"<!-- begin (\S+) -->", text)) - set(parts)
    if unknown:
        raise ValueError(f"{where}: nothing makes {', '.join(sorted(unknown))}")
    return text


def charts(found: Evidence) -> dict[str, str]:
    """File names, and what they hold."""
    chosen = [each for each in curves(found.ours) if matches(each.setting, CHARTED)]
    title = f"Calls needed: {chosen[0].setting.title}" if chosen else ""
    made = {"calls.svg": drawing(calls_chart(found.ours, chosen, title))} if chosen else {}
    if found.others is not None:
        every = curves(found.others)
        title = f"Calls needed: models of others, median of {len(every)} settings"
        made["calls-others.svg"] = drawing(calls_chart(found.others, every, title))
    return made


# -- words and tables


def filled(text: str) -> str:
    return textwrap.fill(text, 128, break_long_words=False, break_on_hyphens=False)


def plain(label: str) -> str:
    return label.replace("warm_up", "warm-up")


def matches(setting: Setting, wanted: dict[str, Any]) -> bool:
    return all(setting.spec[name] == value for name, value in wanted.items())


def source(results: Results, settings: Sequence[Setting] | None = None) -> str:
    """Beneath a table: whose cells, how many there are, which code made them."""
    shown = results.settings if settings is None else settings
    states = Counter(state for setting in shown for _, state in setting.states())
    done = sum(states[each] for each in (CURRENT, STALE, UNKNOWN))
    names = ", ".join(f"`{folder.name}`" for folder, _ in results.suites)
    cells = [c for setting in shown for c in setting.cells if c.status == DONE]
    counts = f"{done} of {states.total()} cells of {names} done, {states.total() - done} missing"
    made = f"geoshrink {listed(cell.spec.get('version') for cell in cells)}"
    on = listed(cell.result.get("made", {}).get("on") for cell in cells)
    return f"*{counts}; {states[STALE]} stale, {states[UNKNOWN]} by unknown code; {made}, {on}.*"


# -- the parts


def cells(found: Evidence) -> str:
    rows = []
    for results in found.each:
        [(folder, suite)] = results.suites
        states = Counter(state for s in results.settings for _, state in s.states())
        done = sum(states[each] for each in (CURRENT, STALE, UNKNOWN))
        version = listed(c.spec.get("version") for c in results.cells if c.status == DONE)
        counts = (done, states.total() - done, states[FAILED], states[STALE], states[UNKNOWN])
        own = [c for c in results.cells if c.label in methods.FORMS and c.status == DONE]
        today = f"{sum(not cell.stale for cell in own)} of {len(own)}"
        rows.append([suite.name, f"`{folder.name}`", *map(str, counts), today, version])
    names = ("suite", "folder", "done", "missing", "of these failed", "stale", "by unknown code")
    names += ("ours by today's code",)
    folders = " ".join(f"cells/{results.suites[0][0].name}" for results in found.each)
    return (
        f"{piped((*names, 'geoshrink'), rows, words=2)}\n\n"
        f"This page: `python benchmarks/results_page.py {folders} --write`. The cells: "
        "`tar xf benchmarks/cells.tar.xz -C cells`. What is stale or by unknown code, and how it "
        "is made anew: [bench.md](bench.md#which-code-made-a-cell)."
    )


def compared(results: Results) -> list[Loss]:
    """Every comparison of our default with one other method, by distance to the full run."""
    return [each for each in against_rivals(results) if each.contest.reference == "full"]


def lost(results: Results) -> tuple[list[Loss], list[Loss]]:
    """(what our default lost, all comparisons in contests that some rival has run)."""
    every = compared(results)
    behind = [each for each in every if each.behind > EVEN]
    rivalled = contests_of([each for each in every if each.rival not in USUAL])
    rivalled |= contests_of(behind)
    return behind, [each for each in every if each.contest.key in rivalled]


def alone(results: Results) -> str:
    """In words: contests that no rival has run."""
    rivalled = contests_of(lost(results)[1])
    rest = {each.contest.key: each.contest.setting.model for each in compared(results)}
    models = Counter(model for key, model in rest.items() if key not in rivalled).most_common()
    told = ", ".join(f"{model} {count}" for model, count in models)
    more = f"In {sum(count for _, count in models)} more no rival has run yet: {told}. "
    return more if models else ""


def contests_of(found: Sequence[Loss]) -> set[Any]:
    return {each.contest.key for each in found}


def ahead(results: Results) -> str:
    """Against direct, the published method, and all rivals."""
    against: dict[Any, Sequence[Any]] = {row[0]: row for row in duels(results).rows}
    parts = []
    for label, name in ((DIRECT, "direct step reduction"), (PUBLISHED, "the published method")):
        if label in against:
            _, count, wins, _, middle, *_ = against[label]
            text = f"than {name} in {wins} of {count} contests, "
            parts.append(f"{text}by {float(middle):.1f} dB in the median")
    behind, every = map(contests_of, lost(results))
    won = f"{len(every - behind)} of {len(every)}"
    parts.append(f"and than every rival that ran, with as many calls, 5 % more at most, in {won}")
    return ", ".join(parts)


def saved(results: Results) -> str:
    """In a sentence: calls for 30 dB."""
    table = calls_by_method(results)
    names = [column.name for column in table.columns]
    row = next(i for i, each in enumerate(table.rows) if each[0] == OURS)
    at = {name: table.shown(row, j) for j, name in enumerate(names)}
    return (
        f"for 30 dB it makes {at['30 dB: calls']} of the full run's calls in the median, and saves "
        f"{at['30 dB: saved']} of direct's"
    )


def conclusion(found: Evidence) -> str:
    pairs = [("our models", found.ours), ("models of others", found.others)]
    return "\n\n".join(
        filled(
            f"**On {where}** ({size(results)}): {by_budget(results)} Our default is nearer to the "
            f"full run {ahead(results)}; {saved(results)}."
        )
        for where, results in pairs
        if results is not None
    )


def size(results: Results) -> str:
    models = {setting.model for setting in results.settings}
    return f"{len(models)} models, {len(results.settings)} settings"


def by_budget(results: Results) -> str:
    """At which budgets some rival is nearer."""
    behind, every = map(contests_of, lost(results))
    counts = {
        b: [sum(k[-1] == b for k in keys) for keys in (behind, every)] for b in budgets(every)
    }
    told = ", ".join(f"{few} of {of} with {b} calls" for b, (few, of) in counts.items() if few)
    most = [str(b) for b, (few, of) in counts.items() if few > MOST * of]
    more = f": with {' and '.join(most)} calls more often than not" if most else ""
    return f"some rival is nearer in {told}{more}." if told else "no rival is nearer."


def others_in_front(results: Results) -> str:
    return f"{front_page.others(results)} For `{OURS}`, {by_budget(results)}"


def in_all(results: Results) -> str:
    """In sentences: contests won and lost over all models, and how much of the suite has run. What
    is shown beyond the suite, such as options that it asks for no more, does not count as asked.
    """
    against: dict[Any, Sequence[Any]] = {row[0]: row for row in duels(results).rows}
    _, count, wins, *_ = against[DIRECT]
    behind, every = map(contests_of, lost(results))
    own = [c for c in results.cells if c.label in methods.FORMS and c.status == DONE]
    today = sum(not cell.stale for cell in own)
    wanted = [pair for _, each in results.suites for pair in each.methods]
    asked = [c for c in results.cells if (c.method, c.options) in wanted]
    failed = sum(cell.status == FAILED for cell in asked)
    missing = sum(cell.status != DONE for cell in asked) - failed
    made = f"{today or 'none'} {'is' if today == 1 else 'are'} by today's version of the code"
    return (
        f"Over all {size(results)}, `{OURS}` is ahead of direct in {wins} of {count} contests. It "
        "is behind some rival, direct and the paper's method counted, in at least "
        f"{len(behind)} of the {len(every)} contests in which some rival has run. "
        f"{alone(results)}Of {len(asked):,} measurements that the suite asks for, {missing:,} are "
        f"not made yet and {failed} failed. Of our own {len(own)}, {made}."
    )


def budgets(keys: set[Any]) -> list[int]:
    return sorted({key[-1] for key in keys})


def losses(found: Evidence) -> str:
    parts = [losses_of(found.ours, "our models", "LOSSES.md")]
    if found.others is not None:
        parts.append(losses_of(found.others, "models of others", "OTHERS.md"))
    return "\n\n".join(parts)


def losses_of(results: Results, where: str, full: str) -> str:
    behind, every = lost(results)
    often = Counter(plain(each.rival) for each in behind).most_common()
    text = f"On {where} our default is behind some rival in {len(contests_of(behind))} of "
    text += f"{len(contests_of(every))} contests in which some rival has run, each one setting, "
    text += "budget and metric"
    text += f": {', '.join(f'{label} ({count})' for label, count in often)}. " if often else ". "
    text += f"{alone(results)}The worst; [{full}](../benchmarks/{full}) has every one."
    rows = [
        [
            each.contest.setting.title,
            each.contest.measure.heading.replace(",", "").replace("dB dB", "dB"),
            str(each.contest.budget),
            plain(each.rival),
            *(f"{v:.{digits_for([each.ours, each.theirs])}f}" for v in (each.ours, each.theirs)),
            f"{each.behind:.1f}",
        ]
        for each in sorted(behind, key=lambda each: -each.behind)[:WORST]
    ]
    names = ("setting", "metric", "calls", "rival", "geoshrink", "its", "behind, dB")
    table = f"\n\n{piped(names, rows, words=2)}" if rows else ""
    return f"{filled(text)}{table}\n\n{source(results)}"


def pictures(found: Evidence) -> str:
    """Every setting of the fruit model: ours, direct, the published method, the best rival."""
    settings = [s for s in found.ours.settings if s.model == "fruit"]
    metric, rows = "PSNR", []
    counts = sorted({budget for setting in settings for budget in setting.budgets})
    for setting in settings:
        means = {b: contest(setting, metric, b).means() for b in counts}
        first = f"{setting.spec['guidance']:g}, {setting.spec['shift']:g}"
        for label in (DIRECT, PUBLISHED, OURS, "best rival"):
            shown = [best_of(found.ours, means[b], label) for b in counts]
            rows.append([first, label, *shown])
            first = ""
    heading = ("guidance, shift", "method", *(f"{b} calls" for b in counts))
    return f"{piped(heading, rows, words=2)}\n\n{source(found.ours, settings)}"


def best_of(results: Results, means: dict[str, float], label: str) -> str:
    """A method's mean, in bold where it is the first of those shown; or the best rival's."""
    rivals = [k for k in means if k not in results.ours and k != DIRECT]
    name = (rivals[0] if rivals else None) if label == "best rival" else label
    if name not in means:
        return "—"
    shown = [k for k in means if k in (DIRECT, PUBLISHED, OURS, *rivals[:1])]
    text = f"**{means[name]:.1f}**" if name == shown[0] else f"{means[name]:.1f}"
    return f"{text} {plain(name)}" if label == "best rival" else text


def models(found: Evidence) -> str:
    results, shown, rows = found.ours, [], []
    for words, wanted, budget, metric in ROWS:
        setting = next((s for s in results.settings if matches(s, wanted)), None)
        means = contest(setting, metric, budget).means() if setting else {}
        if setting is None or OURS not in means:
            continue
        shown.append(setting)
        rows.append(row_of_model(results, words, setting, means, metric))
    names = ("model, calls, metric", DIRECT, PUBLISHED, OURS, "best rival without calibration")
    table = piped((*names, "best calibrated rival"), rows)
    unique = list({id(setting): setting for setting in shown}.values())
    return f"{table}\n\n{source(results, unique)}"


def row_of_model(
    results: Results, words: str, setting: Setting, means: dict[str, float], metric: str
) -> list[str]:
    rivals = [label for label in means if label not in results.ours and label != DIRECT]
    free = next((label for label in rivals if label not in results.calibrated), None)
    fitted = next((label for label in rivals if label in results.calibrated), None)
    columns = [DIRECT, PUBLISHED, OURS, free, fitted]
    best = next(label for label in means if label in columns)
    digits = max(1, digits_for([means[OURS]]) - 1)

    def said(label: str | None) -> str:
        if label not in means:
            return "—"
        text = f"{means[label]:.{digits}f}"
        text = f"**{text}**" if label == best else text
        return text if label in columns[:3] else f"{text} {plain(label)}"

    heading = setting.metrics[metric].heading.replace(",", "")
    return [f"{words}, {heading}", *map(said, columns)]


def calls(found: Evidence) -> str:
    """The settings of the table of models; then every method on models of others."""
    table = calls_needed(found.ours)
    titles, shown = {}, []
    for words, wanted, _, metric in ROWS:
        setting = next((s for s in found.ours.settings if matches(s, wanted)), None)
        if setting is not None:
            titles[setting.title, metric] = words.rpartition(", ")[0]
            shown.append(setting)
    rows = []
    for i, row in enumerate(table.rows):
        name = titles.get((str(row[0]), str(row[1])))
        if name:
            said = [plain(table.shown(i, j)) for j in range(2, len(row))]
            rows.append([f"{name}, {setting_steps(found.ours, row[0])} steps", *said])
    heading = ["model", *(column.name for column in table.columns[2:])]
    unique = list({id(setting): setting for setting in shown}.values())
    parts = [piped(heading, rows), table.caption, source(found.ours, unique)]
    if found.others is not None:
        by = calls_by_method(found.others)
        lines = [
            [plain(by.shown(i, j)) for j in range(len(by.columns))] for i in range(len(by.rows))
        ]
        names = [column.name for column in by.columns]
        parts += ["Models of others, over all of their settings:", piped(names, lines)]
        parts += [by.caption, source(found.others)]
    return "\n\n".join(parts)


def ranking(found: Evidence) -> str:
    """Every method's lead over direct: on models of others, then on ours."""
    parts = []
    for where, results in (("Models of others", found.others), ("Our models", found.ours)):
        if results is not None:
            columns = ("method", "contests", "needs", "calls made", "geoshrink over it")
            heading = (*columns, *(f"{b} calls" for b in methods.BUDGETS))
            lines = [[plain(row[0]), *row[1:]] for row in methods.rows(results)]
            parts += [f"{where}, {size(results)}:", piped(heading, lines)]
            parts += [methods.against_the_best(results), source(results)]
            if better := [[plain(row[0]), *row[1:]] for row in methods.in_part(results)]:
                names = ("variant", "contests", "its lead", "as above", *methods.FORMS[1:])
                parts += [IN_PART, piped(names, better)]
    return "\n\n".join(parts)


def form_of(name: str) -> Callable[[Evidence], str]:
    """What a form of ours adds to the default."""

    def part(found: Evidence) -> str:
        pools = [("models of others", found.others), ("our models", found.ours)]
        there = [(where, results) for where, results in pools if results is not None]
        lines = [f"{where.capitalize()}: {source(results)}" for where, results in there]
        return "\n\n".join([forms.over_default(there, name), *lines])

    return part


def setting_steps(results: Results, title: Any) -> int:
    return next(s.spec["steps"] for s in results.settings if s.title == title)


def quoted(make: Callable[[], str]) -> Callable[[Evidence], str]:
    return lambda found: make()


PARTS: Parts = {
    "cells": cells,
    "conclusion": conclusion,
    "losses": losses,
    "pictures": pictures,
    "models": models,
    "ranking": ranking,
    "calls": calls,
    "learned": form_of("learned"),
    "planned": form_of("planned"),
    **{
        make.__name__: quoted(make)
        for make in (
            excerpts.others,
            excerpts.sizes,
            excerpts.trusted,
            excerpts.held,
            excerpts.flow,
            excerpts.speed,
        )
    },
}
#: Of README.md.
FRONT: Parts = {
    "others": lambda found: others_in_front(found.others) if found.others else "",
    "ours": lambda found: f"{front_page.ours(found.ours)} {in_all(found.ours)}",
}


if __name__ == "__main__":
    main()
