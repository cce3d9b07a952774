"""The page: controls of gradio at the left, what page/ draws at the right."""

from __future__ import annotations

import io
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from ..compare.outcomes import PLANNED
from ..files import write_whole
from ..page.markup import Markup, element
from . import panel
from .line import Stopped
from .model import Controls, Ran
from .screen import Screen, Shown, alert, bar, progress_words, same_picture, say, title_of
from .setting import AUTO, CHOICES, FORMS, LEAST, MOST, Setting, asked
from .studio import Profiled, Session, Studio
from .sweep import Sweep, sweep
from .takeaway import comfyui, plan_json

CALLS, QUALITY = "model calls", "quality"
SESSIONS = 64  # pages that are remembered
STEPS = 100  # of the slider; a link may ask for more
SEEDS = 2**31
READY = "Press Run."
STOPPED = "Stopped; the model is as it was."
ABOUT = (
    "# geoshrink studio\n\nThe full run and the accelerated one from the same noise, live. "
    "The solver keeps its steps; the model is called at a few of them."
)
ABOUT_PLANS = (
    "A profile takes at most ten full runs of a few samples, once for a model with its steps, "
    "guidance and shift. Its plan is saved as a file, and the form *planned* uses it."
)


class App:
    """One page for all users; what a user has seen is kept by the session of the browser's tab."""

    def __init__(self, studio: Studio):
        self.studio = studio
        self.sessions: dict[str, Session] = {}
        self.saved = tempfile.TemporaryDirectory(prefix="geoshrink-studio-")  # to download

    # -- the page

    def blocks(self) -> gr.Blocks:
        clean = (600, 3600)  # seconds: how often old downloads are deleted, and how old they are
        options: dict[str, Any] = {"analytics_enabled": False, "delete_cache": clean}
        with gr.Blocks(title="geoshrink studio", **options) as blocks:
            gr.Markdown(ABOUT)
            with gr.Row():
                with gr.Column(scale=1, min_width=300):
                    self.make_controls()
                with gr.Column(scale=2, min_width=320):
                    self.make_results()
                    with gr.Tabs():
                        with gr.Tab("Find my budget"):
                            self.make_finder()
                        with gr.Tab("Plan it"):
                            self.make_planner()
                        with gr.Tab("Take it with me"):
                            self.make_takeaway()
            self.wire(blocks)
        return blocks

    def make_controls(self) -> None:
        """As the first model has them; opened() sets them by the address."""
        self.model = gr.Dropdown(self.studio.shelf.names, label="Model", elem_id="model")
        self.chosen = gr.Dropdown([], label="Class", allow_custom_value=True, elem_id="class")
        self.prompt = gr.Textbox(label="Prompt", lines=2, visible=False, elem_id="prompt")
        self.negative = gr.Textbox(label="Negative prompt", visible=False, elem_id="negative")
        with gr.Row():
            self.seed = gr.Number(0, label="Seed", precision=0, min_width=120, elem_id="seed")
            self.dice = gr.Button("New seed", min_width=90, elem_id="dice")
        self.steps = gr.Slider(2, STEPS, 50, step=1, label="Steps of the solver", elem_id="steps")
        self.guidance = gr.Slider(0, 20, 3, step=0.1, label="Guidance", elem_id="guidance")
        self.shift = gr.Slider(0.1, 16, 3, step=0.1, label="Shift", elem_id="shift")
        self.form = gr.Radio(FORMS, value=FORMS[0], label="Form", elem_id="form")
        self.ask = gr.Radio([CALLS, QUALITY], value=CALLS, label="Say it by", elem_id="ask")
        self.budget = gr.Slider(LEAST, 50, 10, step=1, label="Model calls", elem_id="budget")
        self.target = gr.Slider(
            5,
            60,
            30,
            step=0.5,
            label="Quality, dB to the full run",
            visible=False,
            elem_id="target",
        )
        with gr.Accordion("Advanced: how stages are predicted", open=False):
            told: dict[str, Any] = {"value": AUTO, "info": "of the form geoshrink"}
            self.rule = gr.Dropdown(CHOICES["rule"], label="Rule: how much is kept", **told)
            self.space = gr.Dropdown(CHOICES["space"], label="Space", **told)
            self.correct = gr.Dropdown(CHOICES["correct"], label="Correct cells", **told)
        with gr.Row():
            self.run = gr.Button("Run", variant="primary", elem_id="run")
            self.stop = gr.Button("Stop", variant="stop", elem_id="stop")
        self.controls = [
            self.model, self.chosen, self.prompt, self.negative, self.seed, self.steps,
            self.guidance, self.shift, self.form, self.ask, self.budget, self.target, self.rule,
            self.space, self.correct,
        ]  # fmt: skip

    def make_results(self) -> None:
        own: dict[str, Any] = {"apply_default_css": False}
        self.status = gr.HTML(say(READY), elem_id="status", **own)
        self.result = gr.HTML(elem_id="result", **own)
        self.live = gr.HTML(elem_id="live", elem_classes="waiting-room", **own)
        self.strips = gr.HTML(elem_id="strips", **own)
        self.table = gr.HTML(elem_id="numbers", **own)
        self.report = gr.HTML(elem_id="report", **own)
        self.history = gr.Gallery(
            label="Runs of this page: choose one to go back to it",
            height=170,
            object_fit="contain",
            allow_preview=False,
            elem_id="history",
        )
        self.shown = [
            self.status, self.result, self.live, self.strips, self.table, self.report,
        ]  # fmt: skip

    def make_finder(self) -> None:
        self.wanted = gr.Slider(
            5, 60, 30, step=0.5, label="Asked: dB to the full run", elem_id="wanted"
        )
        self.find = gr.Button("Find my budget", elem_id="find")
        self.curve = gr.HTML(elem_id="curve", apply_default_css=False)
        self.use = gr.Button("Use it", visible=False, elem_id="use")
        self.found = gr.State(None)

    def make_planner(self) -> None:
        gr.Markdown(ABOUT_PLANS)
        self.samples = gr.Slider(4, 32, 4, step=1, label="Samples", elem_id="samples")
        self.plan = gr.Button("Plan it", elem_id="plan")
        self.planned = gr.HTML(elem_id="planned", apply_default_css=False)
        self.file = gr.DownloadButton("Plan file", visible=False, elem_id="file")

    def make_takeaway(self) -> None:
        self.python = gr.Code(language="python", label="Python", elem_id="python")
        self.comfy = gr.Code(language="json", label="ComfyUI", elem_id="comfyui")
        self.json = gr.Code(language="json", label="Plan", max_lines=8, elem_id="json")
        self.link = gr.Textbox(label="Link to this setting", buttons=["copy"], elem_id="link")
        self.make = gr.Button("Make one file of this page", elem_id="make")
        self.keep = gr.DownloadButton("Download the page", visible=False, elem_id="keep")
        self.taken = [self.python, self.comfy, self.json, self.link]

    def wire(self, blocks: gr.Blocks) -> None:
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        many: dict[str, Any] = {"concurrency_limit": 16}  # they wait for the device by themselves
        blocks.load(self.opened, None, [*self.controls, self.status], **quiet)
        blocks.unload(self.closed)
        gr.on(
            [self.run.click, self.prompt.submit],
            self.play,
            self.controls,
            [*self.shown, self.history, *self.taken],
            api_name="run",
            show_progress="hidden",
            **many,
        )
        self.stop.click(self.halt, None, None, queue=False, **quiet)
        found = [self.curve, self.use, self.found]
        self.find.click(self.sweep, [*self.controls, self.wanted], found, **quiet, **many)
        used = [self.ask, self.budget, self.form]
        self.use.click(lambda found: [CALLS, *found], self.found, used, **quiet)
        planned = [self.planned, self.file, self.form]
        self.plan.click(self.profile, [*self.controls, self.samples], planned, **quiet, **many)
        self.history.select(self.again, None, [*self.controls, *self.shown, *self.taken], **quiet)
        self.make.click(self.page, None, [self.keep, self.status], **quiet)
        self.dice.click(lambda: random.randrange(SEEDS), None, self.seed, **quiet)
        self.model.input(self.changed_model, self.model, [*self.controls, self.status], **quiet)
        self.steps.change(most_calls, [self.steps, self.budget], self.budget, **quiet)
        self.ask.change(
            lambda ask: [gr.update(visible=ask == CALLS), gr.update(visible=ask == QUALITY)],
            self.ask,
            [self.budget, self.target],
            **quiet,
        )

    # -- from controls to a setting, and back

    def setting(self, *values: Any) -> Setting:
        (
            model, chosen, prompt, negative, seed, steps, guidance, shift, form, ask, budget,
            target, rule, space, correct,
        ) = values  # fmt: skip
        has = self.studio.shelf.get(model).controls
        return Setting(
            model,
            (chosen or "") if has.classes else (prompt or "") if has.prompted else "",
            (negative or "") if has.negative else "",
            seed,
            steps,
            guidance if has.guidance else None,
            shift if has.shift else None,
            form,
            budget,
            target if ask == QUALITY else None,
            rule,
            space,
            correct,
        )

    def controls_at(self, at: Setting, has: Controls) -> list[Any]:
        classes, calls = list(has.classes), at.target_db is None
        return [
            at.model,
            gr.update(choices=classes, value=at.prompt if classes else None, visible=bool(classes)),
            gr.update(value=at.prompt, visible=has.prompted and not classes),
            gr.update(value=at.negative, visible=has.negative),
            at.seed,
            gr.update(value=at.steps, maximum=max(STEPS, min(MOST, at.steps))),
            slid(at.guidance, 0, 20, visible=has.guidance and at.guidance is not None),
            slid(at.shift, 0.1, 16, visible=has.shift),
            at.form,
            CALLS if calls else QUALITY,
            slid(min(at.budget, at.steps), min(LEAST, at.steps - 1), at.steps, visible=calls),
            slid(30 if calls else at.target_db, 5, 60, visible=not calls),
            at.rule,
            at.space,
            at.correct,
        ]

    def opened(self, request: gr.Request) -> list[Any]:
        """The controls as the address has them."""
        shelf, query, status = self.studio.shelf, dict(request.query_params), say(READY)
        try:
            has = shelf.get(query.get("model", shelf.names[0])).controls
        except Exception as error:
            status, query = alert(error), {}
            try:
                has = shelf.get(shelf.names[0]).controls
            except Exception:  # another can be chosen
                return [*[gr.skip()] * len(self.controls), status]
        try:
            setting = asked(query, has.usual)
            if has.classes and setting.prompt not in has.classes:
                raise ValueError(f"{setting.model} has no class {setting.prompt!r}: choose one")
        except ValueError as error:
            status, setting = alert(error), has.usual
        return [*self.controls_at(setting, has), status]

    def changed_model(self, name: str) -> Iterator[list[Any]]:
        same = [gr.skip()] * len(self.controls)
        if name not in self.studio.shelf.models:
            yield [*same, say(f"Loading {name} …")]
        try:
            has = self.studio.shelf.get(name).controls
        except Exception as error:
            yield [*same, alert(error)]
            return
        yield [*self.controls_at(has.usual, has), say(READY)]

    # -- what happens

    def session(self, request: gr.Request) -> Session:
        """The one of the tab; of too many the one that was used least lately is forgotten."""
        name = request.session_hash or ""
        session = self.sessions[name] = self.sessions.pop(name, None) or Session()
        idle = [name for name, old in self.sessions.items() if old is not session and not old.stops]
        for name in idle[: max(0, len(self.sessions) - SESSIONS)]:
            del self.sessions[name]
        return session

    def closed(self, request: gr.Request) -> None:
        """The tab is gone: nobody waits for what it asked."""
        if (session := self.sessions.pop(request.session_hash or "", None)) is not None:
            session.stop()

    def close(self) -> None:
        """Ends all that anybody does, and the files to download."""
        for session in list(self.sessions.values()):
            session.stop()
        self.saved.cleanup()

    def halt(self, request: gr.Request) -> None:
        """What was stopped says so itself: words from here might come after its own."""
        session = self.sessions.get(request.session_hash or "")
        if session is not None:
            session.stop()

    def play(self, request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        """Both runs, as they go; then what to take along."""
        session, same = self.session(request), [gr.skip()] * (1 + len(self.taken))
        try:
            with session.task() as stop:
                yield [*put(Shown(say("…"))), *same]
                for event in self.studio.loaded(values[0], stop):
                    yield [*put(Shown(say(progress_words(event)))), *same]
                screen = Screen(self.studio, session, self.setting(*values))
                for event in self.studio.play(screen.setting, session, stop):
                    yield [*put(screen.at(event)), *same]
            yield [*put(screen.end()), *self.after(request, *session.runs[-1])]
        except Stopped:
            yield [*put(Shown(say(STOPPED))), *same]
        except Exception as error:
            yield [*put(Shown(alert(error))), *same]

    def after(self, request: gr.Request, setting: Setting, ran: Ran) -> list[Any]:
        session = self.session(request)
        pictures = [(thumbnail(r), f"{r.label} · {title_of(s)}") for s, r in session.runs]
        return [pictures, *self.takeaway(request, setting, ran)]

    def takeaway(self, request: gr.Request, setting: Setting, ran: Ran) -> list[Any]:
        here = request.headers.get("referer", "").partition("?")[0]
        link = here + setting.link()
        return [self.code(setting, ran), comfyui(setting, ran), plan_json(ran), link]

    def code(self, setting: Setting, ran: Ran) -> str:
        """The lines of Python; where they name a plan, its file is there."""
        plan = None
        if setting.form == PLANNED and ran.plan is not None:
            plan = self.studio.save(setting, ran.plan)
        return self.studio.shelf.get(setting.model).python(setting, plan)

    def page(self, request: gr.Request) -> list[Any]:
        """What is shown, with all runs of the same picture, as one file."""
        session = self.session(request)
        full = None if session.shown is None else self.studio.known(session.shown[0])
        if session.shown is None or full is None:
            return [gr.update(visible=False), say("There is nothing to keep yet: press Run.")]
        setting, ran = session.shown
        runs = same_picture(session, setting)
        entries = [panel.entry_of(each, full) for each in (full, *runs)]
        table = panel.numbers(runs, full)
        page = panel.page_of(title_of(setting), entries, table, self.code(setting, ran))
        file = page.write(self.place("geoshrink-studio.html"))
        return [gr.update(value=str(file), visible=True), gr.skip()]

    def place(self, name: str) -> Path:
        """For a file to download: the only folder that the server gives away."""
        return Path(self.saved.name) / str(time.time_ns()) / name

    def again(self, request: gr.Request, event: gr.SelectData) -> list[Any]:
        """Back to an earlier run of this page; nothing is run."""
        session = self.session(request)
        if session.stops or not int(event.index) < len(session.runs):
            words = "Wait until the run is done, or stop it." if session.stops else "It is gone."
            return [
                *[gr.skip()] * len(self.controls),
                *put(Shown(say(words))),
                *[gr.skip()] * len(self.taken),
            ]
        setting, ran = session.runs[int(event.index)]
        has = self.studio.shelf.get(setting.model).controls
        shown = Screen(self.studio, session, setting).still(ran)
        taken = self.takeaway(request, setting, ran)
        return [*self.controls_at(setting, has), *put(shown), *taken]

    def sweep(self, request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        """Quality over calls, as it is found."""
        session, (*own, wanted) = self.session(request), values
        hidden, drawn = gr.update(visible=False), Markup()
        told: Sweep | None = None
        try:
            setting = self.setting(*own)
            for event in sweep(self.studio, setting, wanted, session):
                if isinstance(event, Sweep):
                    told = event
                    drawn = Markup(panel.curve(told.found, wanted, setting.steps).html())
                words = f"{len(told.found)} of {told.total} runs" if told else progress_words(event)
                done = bar(len(told.found), told.total, words) if told else bar(0, None, words)
                yield [panel.scoped(done, drawn), hidden, None]
            assert told is not None
            button = gr.update(visible=told.budget is not None, value=f"Use {told.budget} calls")
            verdict = element("p", told.words(), class_="status", role="status")
            yield [panel.scoped(verdict, drawn), button, [told.budget, told.form]]
        except Stopped:
            yield [panel.scoped(element("p", STOPPED, role="status"), drawn), hidden, None]
        except Exception as error:
            yield [alert(error), hidden, None]

    def profile(self, request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        """A profile and the file of its plan; then the form is the planned one."""
        session, (*own, samples) = self.session(request), values
        same = [gr.skip(), gr.skip()]
        try:
            setting = self.setting(*own)
            for event in self.studio.plan(setting, int(samples), session):
                if isinstance(event, Profiled):
                    curve = event.profile.curve(range(LEAST, setting.steps)).chart()
                    told = element("p", f"Saved as {event.file}.", role="status")
                    copy = write_whole(self.place(event.file.name), event.file.read_text("utf-8"))
                    file = gr.update(value=str(copy), visible=True)
                    yield [panel.scoped(told, Markup(curve.html())), file, PLANNED]
                else:
                    yield [panel.scoped(bar(*self.profiled(event, setting, int(samples)))), *same]
        except Stopped:
            yield [say(STOPPED), *same]
        except Exception as error:
            yield [alert(error), *same]

    def profiled(self, event: Any, setting: Setting, samples: int) -> tuple[int, int | None, str]:
        """How far a profile is: calls, at most, and in words."""
        if not isinstance(event, list) or not event[0].calls:
            return 0, None, progress_words(event)
        batches = 1 if self.studio.shelf.get(setting.model).together else samples
        most = max(10 * setting.steps * batches, event[0].calls)
        return event[0].calls, most, f"{event[0].calls} of at most {most} model calls"


def put(shown: Shown) -> list[Any]:
    return [gr.skip() if part is None else part for part in shown.parts()]


def most_calls(steps: int, calls: int) -> Any:
    least = min(LEAST, steps - 1)  # gradio wants some way between the ends
    return gr.update(minimum=least, maximum=steps, value=min(steps, calls))


def slid(value: float | None, least: float, most: float, **more: Any) -> Any:
    """A slider at a value, which a link may set beyond its ends."""
    ends = [least, most, *([] if value is None else [value])]
    return gr.update(value=value, minimum=min(ends), maximum=max(ends), **more)


def thumbnail(ran: Ran) -> Any:
    from PIL import Image

    medium: Any = panel.made_medium(ran.made, "") or panel.blank()
    picture = Image.open(io.BytesIO(medium.data)).convert("RGB")
    picture.thumbnail((160, 160))
    return picture
