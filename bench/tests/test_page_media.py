"""Sound, motion and meshes of a comparison in a browser."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from geoshrink.compare.pictures import Pictures
from geoshrink.page import Comparison, Page
from geoshrink_bench.kinds.films import Films
from geoshrink_bench.kinds.meshes import Meshes
from geoshrink_bench.kinds.motions import Motions
from geoshrink_bench.kinds.sounds import Sounds
from pages import needs_browser, opened

pytestmark = needs_browser
RATE = 8000
PLAYING = """() => [...document.querySelectorAll(".listen button")].map((button) =>
  button.getAttribute("aria-pressed"))"""
HEARD = "() => Number.parseFloat(document.querySelector('.listen .time').textContent)"


def written(folder: Path, full: Any, ours: Any) -> Path:
    media = {("s", "full"): full.medium(0, "full", full), ("s", "ours"): ours.medium(0, "", full)}
    page = Page("page", "", [Comparison("look", ["s"], ["full", "ours"], media)])
    return page.write(folder / "page.html")


def pixels_of(shown: Any) -> np.ndarray:
    """The element as grey levels, without its outline."""
    return np.asarray(Image.open(io.BytesIO(shown.screenshot())).convert("L"))[8:-8, 8:-8]


def tone(hertz: float, seconds: float = 3.0) -> Sounds:
    time = torch.arange(int(RATE * seconds)) / RATE
    return Sounds(0.2 * torch.sin(2 * torch.pi * hertz * time)[None], RATE)


def test_sides_are_heard_at_the_same_instant(tmp_path):
    with opened(written(tmp_path, tone(300), tone(500))) as page:
        left, right = (page.get_by_role("button", name=f"Play {s}") for s in ("left", "right"))
        line = page.locator(".position")
        page.wait_for_selector(".listen", state="visible")
        assert page.evaluate(PLAYING) == ["false", "false"] and not line.is_visible()
        left.click()
        page.wait_for_function(f"() => ({HEARD})() >= 0.3")
        assert page.evaluate(PLAYING) == ["true", "false"] and line.is_visible()
        before = page.evaluate(HEARD)
        right.click()
        assert page.evaluate(PLAYING) == ["false", "true"]
        page.wait_for_timeout(150)
        assert before <= page.evaluate(HEARD) < before + 1
        right.click()
        assert page.evaluate(PLAYING) == ["false", "false"]
        stopped = page.evaluate(HEARD)
        share = float(str(line.get_attribute("style")).split("left: ")[1].split("%")[0])
        assert share == pytest.approx(100 * stopped / 3, abs=2)
        page.wait_for_timeout(200)
        assert page.evaluate(HEARD) == stopped
        left.click()  # goes on
        page.locator("select.left").select_option("1")  # the other method, in mid-play
        page.wait_for_function(f"() => ({HEARD})() > {stopped + 0.2}")
        assert page.evaluate(PLAYING) == ["true", "false"]
        page.wait_for_function(f"() => ({PLAYING})().join() === 'false,false'")  # its end
        assert not line.is_visible()


def test_a_film_has_players_and_no_line(tmp_path):
    frames = torch.rand(1, 6, 3, 32, 32)
    film = Films(Pictures(frames, moving=True, fps=6.0), tone(300, 1.0))
    with opened(written(tmp_path, film, film)) as page:
        page.wait_for_selector(".listen", state="visible")
        assert "data-moving" in page.locator(".layer.left img").evaluate("it => it.outerHTML")
        page.get_by_role("button", name="Play left").click()
        page.wait_for_function(f"() => ({HEARD})() >= 0.2")
        assert not page.locator(".position").is_visible()


def test_what_is_silent_has_no_player(tmp_path):
    picture = Pictures(torch.rand(1, 1, 3, 16, 16))
    with opened(written(tmp_path, picture, picture)) as page:
        page.wait_for_selector(".layer.right img")
        assert not page.locator(".listen").is_visible()


def test_two_motions_are_in_phase(tmp_path):
    """Of a figure against itself the seam of the wipe is not seen, whenever one looks."""
    walk = torch.zeros(1, 40, 2, 3)
    walk[..., 1, 1] = 1.6
    walk[0, :, 1, 0] = torch.sin(torch.arange(40) / 3)
    made = Motions(walk, [-1, 0], fps=8.0)
    with opened(written(tmp_path, made, made), device_scale_factor=1) as page:
        page.add_style_tag(content=".tag, .handle { display: none }")
        page.wait_for_selector(".layer.right img")
        stage = page.locator(".stage")
        seen = []
        for _ in range(4):
            page.wait_for_timeout(300)
            seen.append(pixels_of(stage))
        dark = [np.flatnonzero((pixels < 100).any(0)) for pixels in seen]
        assert len({(columns.min(), columns.max()) for columns in dark}) > 1  # it moves
        for pixels, columns in zip(seen, dark):
            rows = (pixels < 100)[:, columns.min() : columns.max()]
            assert all(np.diff(np.flatnonzero(row)).max(initial=1) < 9 for row in rows)  # one line


# Meshes


def house(height: float) -> Meshes:
    """A pyramid, y up."""
    vertices = np.array([[-1, -1, -1], [1, -1, -1], [1, -1, 1], [-1, -1, 1], [0.5, height, 0.2]])
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    return Meshes([(vertices, faces)])


ALONE = ".tag, .handle { display: none }"


def test_both_meshes_turn_together_and_not_by_themselves_where_motion_is_reduced(tmp_path):
    path = written(tmp_path, house(1), house(1))
    with opened(path, reduced_motion="reduce") as page:
        page.add_style_tag(content=ALONE)
        stage = page.locator(".stage")
        page.wait_for_selector(".layer.right canvas")
        box: Any = stage.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def views() -> list[np.ndarray]:
            """The whole of the left, then of the right."""
            found = []
            for at in ("100", "0"):
                page.locator(".wipe").fill(at)
                page.wait_for_timeout(150)
                found.append(pixels_of(stage))
            return found

        def drag(button: Any) -> None:
            page.mouse.move(x, y)
            page.mouse.down(button=button)
            page.mouse.move(x + 60, y + 20)
            page.mouse.up(button=button)

        seen = [views()]
        assert np.abs(seen[0][0].astype(int) - views()[0]).max() < 3  # it stands still
        drag("right")
        seen.append(views())
        page.keyboard.down("Shift")
        drag("left")
        page.keyboard.press("ArrowRight")
        page.keyboard.up("Shift")
        seen.append(views())
        page.get_by_role("button", name="Tilt up").click()
        page.keyboard.press("ArrowLeft")
        seen.append(views())
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -200)
        page.keyboard.up("Control")
        seen.append(views())
        for left, right in seen:
            assert np.abs(left.astype(int) - right).max() < 3
        for (before, _), (after, _) in pairwise(seen):
            assert np.abs(before.astype(int) - after).max() > 40
        drag("left")  # without shift it wipes
        assert 50 < float(page.locator(".wipe").input_value()) < 70


def test_a_mesh_turns_until_it_is_touched(tmp_path):
    with opened(written(tmp_path, house(1), house(2))) as page:
        stage, pressed = page.locator(".stage"), page.locator(".turn [aria-pressed]")
        page.wait_for_selector(".layer.right canvas")
        first = pixels_of(stage)
        page.wait_for_timeout(500)
        assert (pixels_of(stage) != first).any() and pressed.get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="Nearer").click()
        first = pixels_of(stage)
        page.wait_for_timeout(300)
        assert (pixels_of(stage) == first).all() and pressed.get_attribute(
            "aria-pressed"
        ) == "false"


def test_a_mesh_is_where_its_poster_is(tmp_path):
    """Within two pixels of 240; without WebGL the poster stays, without buttons."""
    path, views = written(tmp_path, house(1), house(1)), []
    for flags in ((), ("--disable-3d-apis",)):
        with opened(path, flags, reduced_motion="reduce") as page:
            page.add_style_tag(content=ALONE)
            page.wait_for_selector(".layer.right img")
            page.wait_for_timeout(200)
            assert page.locator("canvas").count() == (0 if flags else 2)
            assert page.locator(".turn").is_visible() != bool(flags)
            views.append(pixels_of(page.locator(".stage")) < 235)
    assert views[0].sum() > 10000
    assert (views[0] != views[1]).sum() < 0.04 * views[0].sum()


def test_a_refresh_shows_the_new_mesh_from_the_same_eye(tmp_path):
    full, other = house(1), house(0.2)
    with opened(written(tmp_path, full, full), reduced_motion="reduce") as page:
        page.add_style_tag(content=ALONE)
        page.wait_for_selector(".layer.right canvas")
        page.get_by_role("button", name="Turn to the left").click()
        page.locator(".wipe").fill("0")
        page.wait_for_timeout(100)
        before = pixels_of(page.locator(".stage"))
        exchange = """(html) => {
          const cell = document.querySelector('.sheet [data-method="1"]');
          cell.querySelector(".media").innerHTML = html;
          cell.closest(".comparison").dispatchEvent(new Event("refresh"));
        }"""
        for made, same in ((other, False), (full, True)):
            page.evaluate(exchange, made.medium(0, "new", full).html())
            page.wait_for_timeout(300)
            after = pixels_of(page.locator(".stage"))
            assert (np.abs(before.astype(int) - after).max() < 3) == same
        page.evaluate(exchange, Pictures(torch.rand(1, 1, 3, 8, 8)).medium(0, "", None).html())
        page.locator("select.left").select_option("1")
        page.wait_for_function("() => !document.querySelector('.layer canvas')")
        assert not page.locator(".turn").is_visible()
