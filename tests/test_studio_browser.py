"""The studio in a browser, as its users drive it; the server is a process of its own."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from pages import needs_browser
from studio_pages import BROKEN, RAISES, SD, Tab, chromium, served

pytestmark = [
    *needs_browser,
    pytest.mark.slow,
    pytest.mark.xdist_group("alone"),
    pytest.mark.skipif(not find_spec("gradio"), reason="no gradio: pip install gradio"),
    pytest.mark.skipif(not find_spec("geoshrink_bench"), reason="no geoshrink-bench"),
    pytest.mark.skipif(not find_spec("diffusers"), reason="no diffusers"),
]
QUICK = dict(model="fruit", prompt="Kiwi 1", steps=12, budget=5, seed=1)
EVIL = "<img src=x onerror=window.hurt=1> {{7*7}} ${7*7} <b>bold</b>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server was started."""
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder, "fruit", SD, RAISES, BROKEN) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Callable[..., Tab]]:
    """Opens tabs; at the end nothing may have gone wrong in any of them."""
    tabs: list[Tab] = []

    def open_tab(**context: Any) -> Tab:
        tabs.append(Tab(browser, address, **context))
        return tabs[-1]

    yield open_tab
    for each in tabs:
        each.page.context.close()
    assert [each.wrong for each in tabs] == [[] for _ in tabs]


# Runs


def test_both_runs_are_seen_as_they_go(tab: Callable[..., Tab]):
    it = tab().open()
    assert it.status == "Press Run." and it.number("steps") == "50" and it.number("budget") == "10"
    it.page.locator("#run").click()
    seen: list[list[str | None]] = []
    bars: list[tuple[int, int]] = []
    while "Done" not in it.status and len(seen) < 900:
        assert it.page.locator("#status [role=alert]").count() == 0
        if (now := it.pictures()) != [None, None] and (not seen or now != seen[-1]):
            seen.append(now)
        if len(kinds := it.kinds()) == 2:
            ours, full = (len(each) - each.count("ahead") for each in kinds)
            bars.append((ours, full))
        it.page.wait_for_timeout(60)
    it.wait("Done")
    it.page.wait_for_timeout(400)
    left, right = ({pair[side] for pair in seen} for side in (0, 1))
    assert min(len(left), len(right)) > 2  # states on the way; a busy machine misses some
    assert all(ours >= full - 1 for ours, full in bars)  # they take turns
    assert max(ours - full for ours, full in bars) >= 10  # it is ahead
    (kinds,) = it.kinds()
    assert len(kinds) == 50 and kinds.count("called") == 10 and "ahead" not in kinds
    rows = it.page.locator("#numbers tbody tr")
    assert [row.locator("td").nth(1).inner_text() for row in rows.all()] == ["50", "10"]
    cells = rows.nth(1).locator("td").all_inner_texts()
    assert float(cells[2]) > 0 and float(cells[3]) > 1 and 15 < float(cells[5]) < 60
    one, other = it.pictures()
    assert one and other and one.startswith("data:image/png") and one != other
    assert it.page.locator("#result .layer.left .tag").inner_text() == "full"
    assert it.page.locator("#result .layer.right .tag").inner_text() == "geoshrink, B = 10"


def test_every_call_made_shows_no_difference(tab: Callable[..., Tab]):
    it = tab().open(**{**QUICK, "budget": 12})
    it.run()
    one, other = it.pictures()
    assert one == other and it.difference() <= 1  # of a round corner
    (kinds,) = it.kinds()
    assert kinds == ["called"] * 12
    it.page.locator("#budget input[type=number]").fill("5")
    it.page.keyboard.press("Tab")
    it.run()  # and the same look sees a difference where there is one
    assert len({*it.pictures()}) == 2 and it.difference() > 8


def test_the_slider_is_dragged_and_takes_the_keys(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.run()
    stage = it.page.locator("#result .stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    clips = [it.clip()]
    middle = box["y"] + box["height"] / 2
    it.page.mouse.move(box["x"] + box["width"] / 2, middle)
    it.page.mouse.down()
    it.page.mouse.move(box["x"] + box["width"] * 0.2, middle, steps=4)
    clips.append(it.clip())
    it.page.mouse.up()
    wipe = it.page.locator("#result .wipe")
    assert abs(float(wipe.input_value()) - 20) <= 2
    for key, change in (("ArrowRight", 1), ("ArrowLeft", -1), ("ArrowLeft", -1)):
        before = float(wipe.input_value())
        it.page.keyboard.press(key)
        assert float(wipe.input_value()) == before + change
    clips.append(it.clip())
    assert len({*clips}) == 3
    place = wipe.input_value()
    it.run()  # a new slider stands where the last one stood
    assert it.page.locator("#result .wipe").input_value() == place


def test_a_run_that_was_stopped_leaves_nothing_behind(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.run()
    before = it.pictures()
    it.open(**{**QUICK, "steps": 100, "budget": 50, "seed": 77})
    it.page.locator("#run").click()
    it.wait("calls")
    it.page.wait_for_timeout(800)
    it.page.locator("#stop").click()
    it.wait("Stopped; the model is as it was.")
    assert it.page.locator("#status [role=status]").count() == 1
    it.open(**QUICK)
    it.run()
    assert it.pictures() == before and None not in before
    it.page.locator("#stop").click()  # nothing to stop
    it.page.wait_for_timeout(500)
    assert it.status.startswith("Done")


def test_two_tabs_wait_for_each_other(tab: Callable[..., Tab]):
    one, other = tab().open(**{**QUICK, "steps": 40, "seed": 5}), tab().open(**{**QUICK, "seed": 6})
    one.page.locator("#run").click()
    one.wait("calls")
    other.page.locator("#run").click()
    assert "Waiting: 1 before you" in other.wait("Waiting")
    for each in (one, other):
        each.wait("Done")
        each.page.wait_for_timeout(400)
    pictures = [each.pictures() for each in (one, other)]
    assert len({picture for pair in pictures for picture in pair}) == 4
    for each, seed, shown in ((one, 5, pictures[0]), (other, 6, pictures[1])):
        assert f"seed {seed}" in each.page.locator("#result h2").inner_text()
        each.run()  # alone it makes the same
        assert each.pictures() == shown


def test_find_my_budget(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.page.locator("#wanted input[type=number]").fill("15")
    it.page.locator("#find").click()
    it.page.wait_for_selector("#use:visible", timeout=90_000)
    words = it.page.locator("#curve [role=status]").inner_text()
    calls = words.split()[0]
    assert f"{calls} model calls reach 15 dB" in words and 4 <= int(calls) <= 8
    assert it.page.locator("#curve svg").first.is_visible()
    assert it.page.locator("#use").inner_text() == f"Use {calls} calls"
    it.page.locator("#budget input[type=number]").fill("11")
    it.page.locator("#use").click()
    it.page.wait_for_function(
        "(calls) => document.querySelector('#budget input[type=number]').value === calls",
        arg=calls,
    )
    it.run()
    assert f"Done: {calls} model calls" in it.status


def test_a_run_of_before_comes_back_with_its_controls(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.run()
    first, address = it.pictures(), it.page.url
    it.page.locator("#budget input[type=number]").fill("7")
    it.page.keyboard.press("Tab")
    it.page.locator("#seed input").fill("2")
    it.page.keyboard.press("Tab")
    it.run()
    assert it.pictures() != first and it.page.url != address
    thumbs = it.page.locator("#history button.thumbnail-item")
    assert thumbs.count() == 2
    thumbs.nth(0).click()
    it.page.wait_for_function(
        "() => document.querySelector('#seed input').value === '1'"
        " && document.querySelector('#budget input[type=number]').value === '5'"
    )
    it.page.wait_for_timeout(500)
    assert it.pictures() == first and it.page.url == address
    assert "Done: 5 model calls" in it.status


# Links


def test_a_link_restores_every_control(tab: Callable[..., Tab]):
    asked = dict(
        model="fruit", prompt="Kiwi 1", seed=12, steps=20, guidance=1.5, shift=2.5,
        form="geoshrink", budget=7, rule="hold", space="data", correct="off",
    )  # fmt: skip
    it = tab().open(**{**asked, "seed": 11})
    it.page.locator("#seed input").fill("12")
    it.page.keyboard.press("Tab")
    it.run()  # the address follows
    assert parse_qs(urlparse(it.page.url).query) == {k: [str(v)] for k, v in asked.items()}
    before = it.pictures()
    it.page.reload()
    it.wait("Press Run")
    it.page.wait_for_function("() => document.querySelector('#class input')?.value === 'Kiwi 1'")
    it.page.wait_for_timeout(300)
    numbers = [it.number(name) for name in ("seed", "steps", "guidance", "shift", "budget")]
    assert numbers == ["12", "20", "1.5", "2.5", "7"]
    it.run()
    assert it.pictures() == before
    assert it.page.locator("#result .layer.right .tag").inner_text() == (
        "geoshrink, B = 7, rule hold, space data, correct off"
    )


@pytest.mark.parametrize(
    "query, words",
    [
        (dict(model="../../etc"), "no model '../../etc' here"),
        (dict(model="os:getcwd"), "no model 'os:getcwd' here"),
        (dict(steps="many"), "steps must be a whole number, got 'many'"),
        (dict(prompt=EVIL), f"has no class {EVIL!r}"),
        (dict(form="<b>"), "unknown form '<b>'"),
    ],
)
def test_a_bad_link_says_what_is_wrong(tab: Callable[..., Tab], query: dict, words: str):
    it = tab().open(**query)
    assert words in it.page.locator("#status [role=alert]").inner_text()
    assert it.page.locator("#status :is(img, b)").count() == 0
    assert it.page.evaluate("window.hurt") is None
    assert it.number("steps") == "50"  # and the page stands as usual


@pytest.mark.parametrize(
    "query",
    [
        dict(QUICK, steps=150, budget=6),
        dict(QUICK, steps=3, budget=3),
        dict(QUICK, guidance=25, shift=20),
        dict(QUICK, budget=5, target_db=70),
    ],
    ids=str,
)
def test_what_a_link_may_ask_can_be_run(tab: Callable[..., Tab], query: dict[str, Any]):
    it = tab().open(**query)
    assert it.status == "Press Run."
    it.page.locator("#run").click()
    it.wait("Done")
    assert len(it.kinds()[0]) == query["steps"]


# What users write, and what goes wrong


def test_a_prompt_is_shown_as_it_was_written(tab: Callable[..., Tab]):
    it = tab().open(model=SD, prompt=EVIL, steps=6, budget=4)
    assert it.page.locator("#prompt textarea").input_value() == EVIL
    it.run()
    assert it.page.locator("#result h2").inner_text().startswith(EVIL[:60])
    assert it.page.evaluate("window.hurt") is None
    assert it.page.locator("img[src=x]").count() == 0
    assert it.page.locator("#result h2 b").count() == 0
    it.page.get_by_role("tab", name="Take it with me").click()
    code = it.page.locator("#python .cm-content")
    code.wait_for()
    assert "{{7*7}} ${7*7} <b>bold</b>" in code.inner_text()
    it.page.wait_for_timeout(300)
    assert it.page.evaluate("window.hurt") is None


@pytest.mark.parametrize("model", [RAISES, BROKEN])
def test_a_model_that_fails_says_so(tab: Callable[..., Tab], model: str):
    it = tab().open(model=model, steps=6, budget=4)
    if model == RAISES:
        it.page.locator("#run").click()
    alert = it.page.locator("#status [role=alert]")
    alert.wait_for(timeout=30_000)
    wanted = {
        RAISES: "RuntimeError: <img src=x onerror=window.hurt=1> out of memory",
        BROKEN: "RuntimeError: no <b>weights</b>",
    }
    assert alert.inner_text() == wanted[model]
    assert it.page.locator("#status :is(img, b)").count() == 0
    assert it.page.evaluate("window.hurt") is None
    it.open(**QUICK)
    it.run()  # others go on


def test_another_model_is_chosen(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.page.locator("#model input").click()
    it.page.get_by_role("option", name=SD).click()
    it.page.locator("#prompt textarea").wait_for()
    assert not it.page.locator("#class").is_visible()
    assert it.page.locator("#negative").is_visible() and not it.page.locator("#shift").is_visible()
    it.page.locator("#steps input[type=number]").fill("6")
    it.page.keyboard.press("Tab")
    it.page.wait_for_function(
        "() => document.querySelector('#budget input[type=number]').value === '6'"
    )
    it.run()
    assert it.page.locator("#result .layer.right .tag").inner_text() == "geoshrink, B = 6"


# The look, and how it is reached


def background(it: Tab) -> bytes:
    """The page's corner, as it is seen."""
    return it.page.screenshot(clip={"x": 2, "y": 2, "width": 4, "height": 4})


def ink(it: Tab) -> str:
    return it.page.locator("#status .geoshrink").evaluate("(e) => getComputedStyle(e).color")


def test_dark_and_light(tab: Callable[..., Tab]):
    light, dark = (tab(color_scheme=scheme).open() for scheme in ("light", "dark"))
    assert background(light) != background(dark) and ink(light) != ink(dark)
    forced = tab(color_scheme="light").open(__theme="dark", **QUICK)
    assert (background(forced), ink(forced)) == (background(dark), ink(dark))
    forced.run()
    assert parse_qs(urlparse(forced.page.url).query)["__theme"] == ["dark"]


def test_a_phone_needs_no_scrolling_to_the_side(tab: Callable[..., Tab]):
    it = tab(viewport={"width": 375, "height": 800}).open(**QUICK)
    widths = "() => [document.documentElement.scrollWidth, innerWidth]"
    assert it.page.evaluate(widths) == [375, 375]
    it.run()
    assert it.page.evaluate(widths) == [375, 375]
    box = it.page.locator("#result .stage").bounding_box()
    assert box is not None and 250 < box["width"] <= 375
    assert box["x"] >= 0 and box["x"] + box["width"] <= 375


def test_keys_alone_run_it(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    focused = "() => document.activeElement?.closest('button')?.id"
    for _ in range(60):
        it.page.keyboard.press("Tab")
        if it.page.evaluate(focused) == "run":
            break
    assert it.page.evaluate(focused) == "run"
    it.page.keyboard.press("Enter")
    it.wait("Done")


NAMELESS = """() => [...document.querySelectorAll("input,select,textarea,button")].filter((e) => {
  if (!e.checkVisibility()) return false;
  const said = (id) => document.getElementById(id)?.textContent;
  const by = (e.getAttribute("aria-labelledby") ?? "").split(" ").map(said).join("");
  const labels = [...(e.labels ?? [])].map((label) => label.textContent).join("");
  const own = e.matches("button") ? e.textContent + (e.querySelector("img")?.alt ?? "") : "";
  const name = [e.ariaLabel, by, labels, own, e.title].map((s) => (s ?? "").trim());
  return !name.some(Boolean);
}).map((e) => e.outerHTML.slice(0, 200))"""


def test_every_control_has_a_name(tab: Callable[..., Tab]):
    it = tab().open(**QUICK)
    it.run()
    assert it.page.evaluate(NAMELESS) == []
    assert it.page.locator("#status [role=status][aria-live=polite]").count() == 1
    for strip in it.page.locator("#strips svg").all():
        assert "stages call the model" in (strip.get_attribute("aria-label") or "")


# The server


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{here}/log", "log", "{here}/out/notes", "{here}/out/../log"]
)
def test_files_are_not_given_away(address: str, folder: Path, path: str):
    """They are there, and the server could read them."""
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "notes").write_text("not a plan")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{address}gradio_api/file={path.format(here=folder)}")
    error.value.close()
    assert error.value.code in (403, 404)


def test_a_program_can_ask_for_a_run(address: str):
    client = pytest.importorskip("gradio_client").Client(address, verbose=False)
    given = ["fruit", "Kiwi 1", "", "", 1, 12, 3, 3, "geoshrink", "model calls", 5, 30]
    try:
        found = client.predict(*given, "auto", "auto", "auto", api_name="/run")
    finally:
        client.close()
    assert "Done: 5 model calls" in str(found[0]) and "geoshrink.sample(" in str(found)
