"""The scripts of a page in a browser: what is started once, refreshed and exchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoshrink.page import Column, Comparison, Page, Picture, Table
from geoshrink.page.media import Animation, png
from pages import needs_browser, opened

Image = pytest.importorskip("PIL.Image")
pytestmark = needs_browser

COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "grey": (128, 128, 128)}
SIDES = """() => ["left", "right"].map((side) =>
  [".tag", "img"].map((what) => {
    const found = document.querySelector(`.layer.${side} ${what}`);
    return found?.alt ?? found?.textContent;
  }))"""


def picture(colour: str, size: tuple[int, int] = (40, 30)) -> Picture:
    return Picture(png(Image.new("RGB", size, COLOURS[colour])), colour)


def comparison() -> Comparison:
    media = {("s", "full"): picture("red"), ("s", "ours"): picture("green")}
    media |= {("t", "full"): picture("blue"), ("t", "ours"): picture("grey")}
    scores = {("s", "ours"): "30 dB", ("t", "ours"): "20 dB"}
    return Comparison("look", ["s", "t"], ["full", "ours"], media, scores=scores)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    table = Table("t", [Column("a", better="higher")], [[1], [3], [2]])
    return Page("page", "", [comparison(), table]).write(tmp_path / "page.html")


def test_x_exchanges_the_sides(written: Path):
    with opened(written) as page:
        page.wait_for_selector(".layer.right img")
        assert page.evaluate(SIDES) == [["full", "red"], ["ours", "green"]]
        page.keyboard.press("x")  # the focus is elsewhere
        page.locator("select.left").focus()
        page.keyboard.press("x")  # a select seeks its entry
        page.wait_for_timeout(100)
        assert page.evaluate(SIDES) == [["full", "red"], ["ours", "green"]]
        page.locator(".stage").click(position={"x": 100, "y": 50})
        page.keyboard.press("x")
        page.wait_for_function("() => document.querySelector('.layer.left img').alt === 'green'")
        assert page.evaluate(SIDES) == [["ours", "green"], ["full", "red"]]
        assert page.locator("output.left").inner_text() == "30 dB"
        assert page.locator(".wipe").get_attribute("aria-keyshortcuts") == "x"


EXCHANGE = """([subject, method, html]) => {
  const cell = document.querySelector(
    `.sheet [data-subject="${subject}"][data-method="${method}"]`);
  cell.querySelector(".media").innerHTML = html;
  cell.querySelector(".score").textContent = "40 dB";
  cell.closest(".comparison").dispatchEvent(new Event("refresh"));
}"""


def test_refresh_shows_what_stands_in_the_sheet_and_keeps_the_rest(written: Path):
    with opened(written) as page:
        page.locator(".subjects button").nth(1).click()
        page.locator("select.left").select_option("1")
        page.locator(".wipe").fill("30")
        page.wait_for_function("() => document.querySelector('.layer.left img').alt === 'grey'")
        new = picture("red", (60, 30)).html().replace('alt="red"', 'alt="new"')
        page.evaluate(EXCHANGE, ["1", "1", new])
        page.wait_for_function("() => document.querySelector('.layer.left img').alt === 'new'")
        assert page.evaluate(SIDES) == [["ours", "new"], ["ours", "new"]]
        assert page.locator(".wipe").input_value() == "30"
        assert page.locator("output.right").inner_text() == "40 dB"
        assert page.locator(".subjects [aria-pressed=true]").inner_text() == "t"
        page.evaluate(EXCHANGE, ["0", "0", new])  # the boxes have the shape of the first
        ratio = "() => document.querySelector('.comparison').style.getPropertyValue('--ratio')"
        page.wait_for_function(f"() => ({ratio})() === '2'")
        thumb = "() => document.querySelector('.subjects img').alt === 'new'"
        page.wait_for_function(thumb)


def test_a_layer_is_never_empty_and_never_holds_what_is_not_decoded(written: Path):
    watch = """() => {
      window.seen = [];
      const layer = document.querySelector(".layer.right");
      new MutationObserver(() => {
        const shown = layer.querySelector("img");
        window.seen.push(shown ? shown.complete && shown.naturalWidth > 0 : false);
      }).observe(layer, { childList: true, subtree: true });
    }"""
    frames = [Image.new("RGB", (40, 30), colour) for colour in COLOURS.values()]
    moving = Animation.of(frames, "moving").html()
    with opened(written) as page:
        page.wait_for_selector(".layer.right img")
        page.evaluate(watch)
        for html in (picture("blue").html(), moving, picture("grey").html(), moving):
            page.evaluate(EXCHANGE, ["0", "1", html])
        page.wait_for_function("() => document.querySelector('.layer.right img').alt === 'moving'")
        seen = page.evaluate("() => window.seen")
        assert seen and all(seen)


def test_what_comes_later_is_started_once(written: Path):
    add = """(html) => {
      const place = document.createElement("div");
      place.innerHTML = html;
      document.body.append(place);
      for (let i = 0; i < 3; i++) startWithin(place);
      startWithin(document);
    }"""
    later = Table("t", [Column("b", better="higher")], [[1], [3], [2]]).html()
    with opened(written) as page:
        page.evaluate(add, later + comparison().html())
        page.wait_for_function("() => document.querySelectorAll('.layer.right img').length === 2")
        table = page.locator(".sortable").nth(1)
        table.locator("th button").click()  # started twice it would sort twice
        assert table.locator("td").all_inner_texts() == ["3", "2", "1"]
        page.evaluate("startWithin(document.querySelector('.sortable'))")
        page.locator(".sortable th button").first.click()
        assert page.locator(".sortable").first.locator("td").all_inner_texts() == ["3", "2", "1"]
