"""Contact sheets: what is drawn is where it should be, and the command writes what it says."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from geoshrink_bench.zoo import drawing, sheet
from geoshrink_bench.zoo.drawing.canvas import GAP, PAPER, TEXT
from geoshrink_bench.zoo.drawing.field import REACH
from geoshrink_bench.zoo.drawing.figure import LEFT, RIGHT
from geoshrink_bench.zoo.drawing.figure import spread as set_apart
from geoshrink_bench.zoo.modalities import Pictures

BLANK = Image.new("RGB", (1, 1), PAPER).getpixel((0, 0))


def drawn(image: Image.Image) -> np.ndarray:
    """Where an image is not paper."""
    return (np.asarray(image).astype(int) != BLANK).any(-1)


def near(image: Image.Image, colour: str) -> np.ndarray:
    """Where an image has about this colour."""
    rgb = np.array(Image.new("RGB", (1, 1), colour).getpixel((0, 0)))
    return np.abs(np.asarray(image).astype(int) - rgb).max(-1) < 40


def test_a_sheet_has_its_tiles_beneath_their_labels():
    tiles = [Image.new("RGB", (40, 30), colour) for colour in ("red", "lime", "blue")]
    image = drawing.contact_sheet(tiles, ["a", "b", "c"], 2)
    assert image.size == (2 * 40 + 3 * GAP, 2 * (30 + TEXT + 5) + 3 * GAP)
    pixels = np.asarray(image)
    assert [int((pixels == colour).all(-1).sum()) for colour in ((255, 0, 0), (0, 0, 255))] == [
        1200,
        1200,
    ]
    ys, xs = (pixels == (0, 255, 0)).all(-1).nonzero()
    assert xs.min() == 40 + 2 * GAP and ys.min() > TEXT
    assert drawn(image)[: ys.min(), GAP + 40 :].any()  # the label b
    with pytest.raises(ValueError, match="label per tile, got 3 and 1"):
        drawing.contact_sheet(tiles, ["a"], 2)


def test_long_labels_end_in_their_column():
    tiles = [Image.new("RGB", (60, 10), PAPER)] * 2
    image = drawing.contact_sheet(tiles, ["a label that is much too long", ""], 2)
    assert drawn(image)[:, :60].any() and not drawn(image)[:, 60 + GAP :].any()


def test_a_file_is_small_and_keeps_its_notes(tmp_path):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (200, 200, 3), dtype=np.uint8))
    path = tmp_path / "noise.webp"
    drawing.save_picture(image, path, notes={"about": "64×64"})
    with Image.open(path) as back:
        assert np.array_equal(np.asarray(back), np.asarray(image))
    assert drawing.notes_of(path) == {"about": "64×64"}
    drawing.save_picture(image, path, limit=40_000, notes={"about": "σ"})
    assert path.stat().st_size <= 40_000 and drawing.notes_of(path) == {"about": "σ"}
    with pytest.raises(ValueError, match=r"noise\.webp does not fit into 100 bytes"):
        drawing.save_picture(image, path, limit=100)


def test_an_upright_skeleton_is_an_upright_line():
    """Hips at 0.9 m, head at 1.7 m, feet on the ground: straight, at the middle, to scale."""
    joints = np.zeros((4, 3, 3))
    joints[:, :, 1] = [0.9, 1.7, 0.0]
    image = drawing.draw_motion(joints, [-1, 0, 0], (200, 150), instants=1)
    assert image.size == (200, 150)
    body = drawn(image)
    ground = body.mean(1).argmax()  # the row that is drawn from side to side
    body[ground : ground + 2] = False
    rows, columns = body.nonzero()
    assert abs(columns.mean() - 99.5) < 1 and np.ptp(columns) < 8
    scale = 150 / (1.8 + 2 * 0.12)
    assert np.ptp(rows) == pytest.approx(scale * (1.7 + 0.055), abs=3)
    assert ground == pytest.approx(150 - 0.12 * scale, abs=1)


def test_left_and_right_have_their_colours_and_sides():
    """Who faces us in three quarters, going to the right, has his left arm to our right."""
    joints = np.zeros((2, 3, 3))
    joints[:, :, 1] = 1.0
    joints[:, 1, 0], joints[:, 2, 0] = 0.5, -0.5  # faces +z with y up: left is +x
    names = ["Hips", "LeftHand", "RightHand"]
    image = drawing.draw_motion(joints, [-1, 0, 0], (120, 120), names, instants=1)
    left, right = near(image, LEFT), near(image, RIGHT)
    assert left.any() and right.any()
    assert left.nonzero()[1].min() > right.nonzero()[1].max() - 8


@pytest.mark.parametrize("way", [(1, 0), (0, -1), (-1, 0), (0.6, 0.8)])
def test_the_walk_goes_to_the_right_whatever_its_direction(way):
    """Who stretches an arm forward, and gets far, stretches it to our right."""
    forward = np.array([way[0], 0.0, way[1]])
    joints = np.zeros((5, 3, 3))
    joints[:, :, 1] = [0.0, 1.0, 1.0]
    joints[:, 2] += 0.5 * forward
    joints += np.arange(5)[:, None, None] * forward
    image = drawing.draw_motion(joints, [-1, 0, 1], (200, 100), instants=1)
    columns = drawn(image)[:70].nonzero()[1]
    body = drawn(image)[60:70].nonzero()[1].mean()
    assert columns.max() > body + 15 and columns.min() > body - 5


def test_instants_do_not_overlap():
    poses = np.zeros((4, 2, 3))
    poses[:, :, 0] = np.array([0.0, 0.1, 5.0, 4.0])[:, None]
    gaps = np.diff(set_apart(poses)[:, 0, 0])
    assert gaps.min() == pytest.approx(0.95) and gaps[1] == pytest.approx(4.05)


def ball(radius: float, side: int = 32, centre: tuple[float, float, float] = (0, 0, 0)):
    axis = (np.arange(side) + 0.5) * 2 / side - 1
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1) - np.array(centre)
    return np.clip(np.linalg.norm(grid, axis=-1) - radius, -0.15, 0.15).astype(np.float32)


def test_a_moving_figure_is_seen_from_where_its_reference_is():
    """The reference stays in the middle; who is half a metre ahead is drawn to the right."""
    walk = np.zeros((20, 2, 3))
    walk[:, :, 0] = np.linspace(0, 3, 20)[:, None]
    walk[:, 1, 1] = 1.6
    ahead = walk + np.array([0.5, 0, 0])
    parents = [-1, 0]
    for clip, least, most in ((walk, 155, 165), (ahead, 180, 320)):
        for frame in drawing.moving_figure(clip, parents, walk):
            dark = np.asarray(frame.convert("L")) < 128
            column = np.flatnonzero(dark.any(0)).mean()
            assert frame.size == (320, 320) and least <= column <= most
    assert len(drawing.moving_figure(np.tile(walk, (4, 1, 1)), parents, walk)) == 48


def test_a_ball_is_a_disc_lit_from_the_upper_left():
    image = drawing.draw_object(ball(0.6), (100, 80))
    assert image.size == (100, 80)
    disc = drawn(image)
    radius = 0.6 * 80 / (2 * REACH)
    rows, columns = disc.nonzero()
    assert (rows.mean(), columns.mean()) == pytest.approx((39.5, 49.5), abs=0.5)
    for extent in (np.ptp(rows) + 1, np.ptp(columns) + 1):
        assert extent == pytest.approx(2 * radius, abs=2.5)
    assert disc.sum() == pytest.approx(np.pi * radius**2, rel=0.08)
    grey = np.asarray(image.convert("L")).astype(int)
    assert grey[30, 42] > grey[50, 58] + 40


def test_up_is_z_and_the_near_hides_the_far():
    high = drawn(drawing.draw_object(ball(0.2, centre=(0, 0, 0.6)), (80, 80)))
    assert high[:40].any() and not high[40:].any()
    front, back = ball(0.3, centre=(0.3, -0.4, 0.2)), ball(0.3, centre=(-0.3, 0.4, -0.2))
    near_alone = np.asarray(drawing.draw_object(front, (40, 40)))
    both = np.asarray(drawing.draw_object(np.minimum(front, back), (40, 40)))
    inside = (near_alone != BLANK).all(-1)
    differs = (np.abs(both.astype(int) - near_alone).max(-1) > 25) & inside
    assert inside.any() and differs.sum() < 0.1 * inside.sum()


def test_a_thin_wall_has_no_holes():
    plate = np.full((32, 32, 32), 0.15, np.float32)
    plate[:, 13:19] = np.abs(np.arange(13, 19) / 16 - 1)[:, None] - 0.003  # a tenth of a cell
    body = drawn(drawing.draw_object(plate, (60, 60)))
    assert body[20:40, 20:40].all()


def test_nothing_inside_is_blank_paper_and_all_inside_is_closed():
    assert not drawn(drawing.draw_object(np.full((8, 8, 8), 0.15, np.float32), (30, 30))).any()
    cube = drawing.draw_object(np.full((8, 8, 8), -0.15, np.float32), (30, 30))
    top, left, right = (cube.convert("L").getpixel(at) for at in ((14, 3), (8, 18), (24, 18)))
    assert drawn(cube).mean() > 0.5 and top > left + 20 > right + 40  # type: ignore[operator]


def test_a_tone_is_a_line_at_its_pitch():
    rate, width, height = 8000, 120, 200
    t = np.arange(rate) / rate
    rows = []
    for pitch in (200, 400, 800):
        tone = 0.5 * np.sin(2 * np.pi * pitch * t)
        image = drawing.draw_sound(tone, rate, (width, height))
        assert image.size == (width, height)
        loud = np.asarray(image.convert("L")).astype(int)[height // 4 :].mean(1)
        rows.append(int(loud.argmax()))
    octave = (height - height // 4) / np.log2(rate / 2 / 80)
    assert rows[0] - rows[1] == pytest.approx(octave, abs=2)
    assert rows[1] - rows[2] == pytest.approx(octave, abs=2)


def test_the_waveform_is_as_high_as_it_is_loud():
    rate = 8000
    sound = np.concatenate([np.zeros(4000), np.ones(2000), -np.ones(2000)])
    upper = drawn(drawing.draw_sound(sound, rate, (80, 80)))[:20]
    tops = [column.nonzero()[0].mean() for column in upper.T]
    assert tops[10] == pytest.approx(9.5, abs=1) and tops[50] < 2 and tops[70] > 17


def test_a_picture_stands_beside_its_sound():
    picture = Image.fromarray(np.diag([255] * 8).astype(np.uint8))
    image = drawing.draw_pair(picture, np.zeros(8000), 8000, (200, 80))
    assert image.size == (200, 80)
    left = np.asarray(image)[:, :80, 0]
    assert np.array_equal(left[5::10, 5::10], np.asarray(picture))


def test_a_strip_shows_the_frames_in_order(tmp_path):
    frames = [Image.new("RGB", (8, 8), (16 * i, 0, 0)) for i in range(16)]
    strip = drawing.draw_clip(frames, (200, 20), shown=4)
    assert strip.size == (200, 20)
    assert [strip.getpixel((x, 10))[0] for x in (10, 70, 130, 190)] == [0, 64, 128, 192]  # type: ignore[index]
    drawing.save_animation(frames, tmp_path / "moving.webp")
    with Image.open(tmp_path / "moving.webp") as back:
        assert getattr(back, "n_frames") == 16  # noqa: B009


def test_the_command_draws_fruit(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Pictures, "count", 2)
    monkeypatch.setattr(Pictures, "columns", 2)
    sheet.main(["fruit", "--steps", "2", "--out", str(tmp_path)])
    path = tmp_path / "fruit.webp"
    with Image.open(path) as image:
        assert image.size == (2 * 190 + 3 * GAP, 190 + TEXT + 5 + 2 * GAP)
        assert np.asarray(image.convert("L"))[60:180, 40:180].std() > 5
    assert path.stat().st_size <= 250_000 and "fruit.webp" in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "![fruit](fruit.webp)" in page and "## motion" not in page
    assert "`python -m geoshrink_bench.zoo.sheet fruit --steps 2 --guidance 3`" in page
    assert "5,877,936 parameters" in page


def test_models_without_weights_are_an_error_only_if_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GEOSHRINK_ZOO", str(tmp_path))
    monkeypatch.setattr(sheet, "RECIPES", {"motion": sheet.RECIPES["motion"]})
    with pytest.raises(FileNotFoundError, match="weights of motion"):
        sheet.main(["motion", "--out", str(tmp_path)])
    sheet.main(["--out", str(tmp_path)])
    assert "motion is left out" in capsys.readouterr().err
