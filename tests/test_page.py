"""The HTML page: what it escapes, marks, refuses and writes. No browser is needed."""

from __future__ import annotations

import io
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from geoshrink.page import (
    Anchors,
    Column,
    Comparison,
    Lines,
    Page,
    Picture,
    Series,
    Table,
    add_files,
    document,
)
from geoshrink.page.media import Animation

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
JPEG = b"\xff\xd8\xff\xe0" + bytes(16)
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "
HOSTILE = "<script>alert(1)</script>\"'&"


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text between tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("img", "input", "link", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.found if t == tag and attributes.items() <= a.items()]

    def text_of(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]


def comparison(**changes) -> Comparison:
    subjects, methods = ["apple", "pear"], ["full", "direct", "ours"]
    pairs = [(s, m) for s in subjects for m in methods]
    media = {(s, m): Picture(PNG + f"{s} {m}".encode(), f"{s}, {m}") for s, m in pairs}
    given = dict(title="t", subjects=subjects, methods=methods, media=media)
    return Comparison(**{**given, **changes})


def results(**changes) -> Table:
    columns = [
        Column("Method"),
        Column("B"),
        Column("PSNR", "dB", better="higher"),
        Column("LPIPS", better="lower", digits=3),
    ]
    rows = [
        ["full", 50, None, 0.0],
        ["direct", 5, 20.0, 0.3],
        ["ours", 5, 25.0, 0.1],
        ["broken", 10, 12.5, math.nan],
        ["direct", 10, 31.004, 0.05],
        ["ours", 10, 30.999, 0.04],
    ]
    return Table(**{**dict(title="Results", columns=columns, rows=rows, group_by=1), **changes})


def whole_page() -> Page:
    """A page with every kind of section and a hostile string in every place that takes one."""
    h = HOSTILE
    sections = [
        Comparison(
            h,
            [h],
            [h],
            {(h, h): Picture(PNG, h)},
            caption=h,
            groups={h: h},
            scores={(h, h): h},
        ),
        Table(h, [Column(h, h, better="higher")], [[h], [1.5], [None]], h, command=h, group_by=0),
        Lines(h, [Series(h, [1, 2], [3, 4])], h, h, h),
        Anchors(h, [(h, [0, 2])], 4, h),
    ]
    return Page(h, h, sections, h)


# Document


def test_hostile_strings_are_text_everywhere():
    html = whole_page().html()
    tags = Tags(html)
    assert len(tags.all("script")) == 1
    assert "<script>alert" not in html
    assert tags.open == []
    shown = [text for _, text in tags.texts].count(HOSTILE)
    assert shown >= 20  # title, headings, labels, cells, captions: each unescapes to itself
    assert tags.all("img")[0]["alt"] == HOSTILE


def test_nothing_is_loaded_from_elsewhere():
    html = whole_page().html()
    assert re.search(r"https?:|//[a-z]+\.|@import|url\(", html) is None
    for _, attributes in Tags(html).found:
        for name in ("src", "href", "srcset", "poster", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")


def test_style_and_script_are_in_the_page():
    html = Page("t", "", []).html()
    assert "prefers-color-scheme: dark" in html
    assert 0 < html.index("function startWithin") < html.index("function startSorting")
    assert "querySelectorAll(" in html and "document.querySelectorAll" not in html


def test_another_package_brings_its_own_style_and_script(tmp_path: Path, monkeypatch):
    package = tmp_path / "brings_its_own"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "own.css").write_text(".own { color: red }")
    (package / "own.js").write_text("startOwn();")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(document, "STYLES", [*document.STYLES])
    monkeypatch.setattr(document, "SCRIPTS", [*document.SCRIPTS])
    for _ in range(2):
        add_files("brings_its_own", "own.css", "own.js")
    html = Page("t", "", []).html()
    assert html.count(".own {") == html.count("startOwn();") == 1
    assert html.index("startOwn();") > html.index("function startSorting")


def test_lead_is_parted_at_blank_lines():
    html = Page("t", "one\nline\n\n two ", []).html()
    assert '<p class="lead">one\nline</p><p class="lead">two</p>' in html


def test_backticks_are_code_and_still_text():
    html = Page("t", f"run `a <b>` now, {HOSTILE}, a lone ` stays", []).html()
    assert "run <code>a &lt;b&gt;</code> now" in html and "a lone ` stays" in html
    assert HOSTILE not in html


def test_sections_come_in_order():
    html = Page("t", "", [Anchors("first", [], 1), Anchors("second", [], 1)]).html()
    assert 0 < html.index("<h2>first</h2>") < html.index("<h2>second</h2>")


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path):
    path = tmp_path / "deep" / "page.html"
    assert Page("old", "", []).write(path) == path
    page = Page("new — ü", "", [])
    assert page.write(str(path)) == path
    assert path.read_text("utf-8") == page.html()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_page(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = Page("old", "", []).write(tmp_path / "page.html")
    before = path.read_bytes()

    def fail(*given: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        Page("new", "", []).write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# Media


@pytest.mark.parametrize("data, kind", [(PNG, "png"), (JPEG, "jpeg"), (WEBP, "webp")])
def test_picture_announces_its_type(data: bytes, kind: str):
    assert f'src="data:image/{kind};base64,' in Picture(data, "a").html()


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"RIFF\0\0\0\0WAVEfmt ", b"<svg></svg>"])
def test_picture_refuses_other_bytes(data: bytes):
    with pytest.raises(ValueError, match="PNG, JPEG or WEBP"):
        Picture(data, "a")


def frames(count: int, size: tuple[int, int] = (12, 8)) -> list:
    Image = pytest.importorskip("PIL.Image")
    return [Image.new("RGB", size, (40 * i, 255 - 40 * i, 0)) for i in range(count)]


@pytest.mark.parametrize("webp", [True, False])
def test_animation_plays_its_frames_over_and_over(webp: bool, monkeypatch: pytest.MonkeyPatch):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr("PIL.features.check", lambda feature: webp)
    animation = Animation.of(frames(5), HOSTILE, fps=20)
    assert animation.data.startswith(b"RIFF" if webp else b"\x89PNG")
    with Image.open(io.BytesIO(animation.data)) as shown:
        assert (shown.n_frames, shown.size, shown.info["loop"]) == (5, (12, 8), 0)
        shown.seek(1)
        shown.load()
        assert shown.info["duration"] == 50
    (image,) = Tags(animation.html()).all("img")
    assert str(image["src"]).startswith(f"data:image/{'webp' if webp else 'png'};base64,")
    assert image["alt"] == HOSTILE


def test_an_exact_animation_keeps_every_pixel():
    Image = pytest.importorskip("PIL.Image")
    if not pytest.importorskip("PIL.features").check("webp"):
        pytest.skip("Pillow has no WEBP")
    speckled = Image.effect_noise((32, 32), 80).convert("RGB")
    kept = {}
    for exact in (False, True):
        animation = Animation.of([speckled, *frames(1, (32, 32))], "a", exact=exact)
        with Image.open(io.BytesIO(animation.data)) as shown:
            kept[exact] = shown.convert("RGB").tobytes() == speckled.tobytes()
    assert kept == {False: False, True: True}


def test_an_animation_stands_where_a_picture_does():
    animation = Animation.of(frames(1), "one frame")
    media = {**comparison().media, ("pear", "ours"): animation}
    assert animation.html() in comparison(media=media).html()


def test_only_animations_are_started_together():
    """Was: the browser played each from when it was first seen, so the wipe parted two moments."""
    moving = Tags(Animation.of(frames(2), "a").html()).all("img")[0]
    still = Tags(comparison().html()).all("img")[0]
    assert "data-moving" in moving and "data-moving" not in still
    assert '"moving" in picture.dataset' in Page("t", "", []).html()


@pytest.mark.parametrize(
    "count, fps, message",
    [(0, 16, "at least one frame"), (2, 0, "above 0"), (2, math.nan, "above")],
)
def test_animation_refuses_what_cannot_play(count: int, fps: float, message: str):
    with pytest.raises(ValueError, match=message):
        Animation.of(frames(count), "a", fps)


# Comparison


def test_comparison_holds_each_picture_once():
    tags = Tags(comparison().html())
    assert len({image["src"] for image in tags.all("img")}) == len(tags.all("img")) == 6


def test_comparison_sheet_pairs_buttons_with_pictures():
    html = comparison().html()
    (button,) = (b for b in re.findall(r"<button.*?</button>", html) if 'alt="pear, ours"' in b)
    (tag,) = Tags(button).all("button")
    assert (tag["data-subject"], tag["data-method"]) == ("1", "2")


def test_comparison_names_the_missing_pair():
    media = dict(comparison().media)
    del media["pear", "direct"]
    with pytest.raises(ValueError, match=r"'pear'.*'direct'"):
        comparison(media=media)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(scores={("plum", "full"): "1"}), "subject 'plum'"),
        (dict(scores={("pear", "best"): "1"}), "method 'best'"),
        (dict(groups={"best": "B"}), "method 'best'"),
        (dict(start=("full", "best")), "method 'best'"),
        (dict(subjects=["pear", "pear"]), "'pear' is given twice"),
        (dict(methods=[]), "at least one method"),
    ],
)
def test_comparison_refuses_names_it_cannot_place(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        comparison(**changes)


@pytest.mark.parametrize(
    "start, chosen", [(None, ["full", "ours"]), (("direct", "full"), ["direct", "full"])]
)
def test_comparison_starts_with_two_methods(start: tuple[str, str] | None, chosen: list[str]):
    html = comparison(start=start).html()
    assert re.findall(r"<option [^>]*selected>([^<]*)<", html) == chosen


def test_comparison_groups_neighbouring_methods():
    html = comparison(groups={"direct": "B = 10", "ours": "B = 10"}).html()
    assert html.count('<optgroup label="B = 10">') == 2  # one for each drop-down
    assert html.count('scope="rowgroup"') == 1
    assert html.index(">full</th>") < html.index("B = 10</span>") < html.index(">direct</th>")


def test_comparison_shows_scores_where_there_are_some():
    html = comparison(scores={("pear", "ours"): "31.2 dB"}).html()
    assert Tags(html).text_of("span").count("31.2 dB") == 1
    assert 'class="reading"' in html
    assert 'class="reading"' not in comparison().html()


def test_comparison_wipes_with_a_labelled_range():
    (wipe,) = Tags(comparison().html()).all("input")
    assert wipe["type"] == "range" and "x exchanges" in str(wipe["aria-label"])


# Table


def test_best_is_per_group_and_direction_and_equal_as_shown():
    # PSNR of group 10: 31.004 and 30.999 both show as 31.00, and both win; nobody beats 'full'.
    assert results().best() == {(2, 2), (2, 3), (4, 2), (5, 2), (5, 3)}


def test_best_without_groups_is_over_all_rows():
    assert results(group_by=None).best() == {(4, 2), (5, 2), (0, 3)}


def test_best_needs_somebody_worse():
    column = Column("x", better="higher")
    assert Table("t", [column], [[1.0], [1.0], [None]]).best() == set()
    assert Table("t", [column], [[1.0], [-math.inf]]).best() == {(0, 0)}


def test_html_marks_the_best_and_says_so():
    html = results().html()
    assert Tags(html).text_of("strong") == ["25.00", "0.100", "31.00", "31.00", "0.040"]
    assert "Bold is best for each B." in html
    assert "Bold" not in Table("t", [Column("x")], [[1]]).html()


def test_html_keeps_full_numbers_for_sorting():
    tags = Tags(results().html())
    assert {a["data-value"] for a in tags.all("td") if "data-value" in a} >= {"31.004", "30.999"}
    assert len(tags.all("th", **{"aria-sort": "none"})) == 4
    assert [a.get("data-first") for a in tags.all("th")] == [None, None, "higher", "lower"]


def test_none_is_a_dash_and_sorts_as_missing():
    table = results()
    assert table.shown(0, 2) == "—"
    assert len(Tags(table.html()).all("td", **{"class": "number"})) == 18
    assert sum("data-missing" in a for a in Tags(table.html()).all("td")) == 1
    assert "| full | 50 | — | 0.000 |" in table.markdown()


def test_integers_are_whole_unless_floats_share_the_column():
    table = Table("t", [Column("a"), Column("b", digits=1)], [[3, 3], [4, 2.5]])
    assert [table.shown(0, 0), table.shown(0, 1), table.shown(1, 1)] == ["3", "3.0", "2.5"]


def test_numbers_of_numpy_are_numbers():
    np = pytest.importorskip("numpy")
    rows = [[np.float32(1.5), np.int64(3)], [np.float32(2.5), np.int64(4)]]
    table = Table("t", [Column("a", better="higher"), Column("b", better="lower")], rows)
    assert table.best() == {(1, 0), (0, 1)}
    assert 'data-value="2.5"><strong>2.50<' in table.html()
    assert 'data-value="3.0"><strong>3<' in table.html()


def test_groups_are_parted_by_a_rule():
    assert results().html().count('<tr class="opens">') == 2
    assert 'class="opens"' not in results(group_by=None).html()


def test_markdown():
    table = Table(
        "Results",
        [Column("Method"), Column("PSNR", "dB", "higher", 1)],
        [["a|b\n<i>", 1.0], ["ours", 2.0]],
        caption="Why.",
        command="make x",
    )
    assert table.markdown() == (
        "### Results\n\n"
        "| Method | PSNR (dB) ↑ |\n"
        "| --- | ---: |\n"
        "| a\\|b \\<i> | 1.0 |\n"
        "| ours | **2.0** |\n\n"
        "Why.\n\n"
        "```sh\nmake x\n```\n"
    )


def test_text_is_aligned():
    table = Table(
        "Results",
        [Column("Method"), Column("PSNR", better="higher"), Column("B")],
        [["direct", 9.5, 5], ["ours", 10.25, 10], ["none", None, None]],
        command="make x",
    )
    assert table.text() == (
        "Results\n\n"
        "Method  PSNR ↑    B\n"
        "------  -------  --\n"
        "direct    9.50    5\n"
        "ours     10.25*  10\n"
        "none         —    —\n\n"
        "$ make x\n"
    )


def test_table_without_rows_still_has_its_head():
    table = Table("t", [Column("x", better="lower")], [])
    assert table.text() == "t\n\nx ↓\n----\n"
    assert Tags(table.html()).text_of("abbr") == ["↓"]


def test_table_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="row 1 has 1 cells, not 2"):
        Table("t", [Column("a"), Column("b")], [[1, 2], [1]])
    with pytest.raises(ValueError, match="group_by=2"):
        Table("t", [Column("a")], [[1]], group_by=2)
    with pytest.raises(ValueError, match="'bigger'"):
        Column("a", better="bigger")  # pyright: ignore[reportArgumentType]


# Charts


def paths(html: str, kind: str) -> list[str]:
    """The `d` of every path of this class in the drawing itself, without the legend."""
    drawing = html[html.index("</ul>") + len("</ul>") : html.index("</section>")]
    return [str(a["d"]) for a in Tags(drawing).all("path", **{"class": kind})]


@pytest.mark.parametrize("gap", [None, math.nan, math.inf])
def test_a_gap_breaks_the_line(gap: float | None):
    html = Lines("t", [Series("s", [1, 2, 3, 4, 5], [1, 2, gap, 4, 5])], "x", "y").html()
    (line,) = paths(html, "line")
    assert (line.count("M"), line.count("L")) == (2, 2)
    assert len(paths(html, "mark")) == 4
    assert "nan" not in html and "inf" not in html


def test_a_single_point_is_a_mark_in_the_middle():
    html = Lines("t", [Series("s", [3], [7])], "x", "y").html()
    assert paths(html, "line")[0].count("L") == 0
    assert len(paths(html, "mark")) == 1
    assert "<title>s: 7 at 3</title>" in html


def test_an_empty_series_is_named_and_not_drawn():
    html = Lines("t", [Series("a", [], []), Series("b", [1], [None])], "x", "y").html()
    assert "a (no data)" in html and "b (no data)" in html
    assert "no data" in Tags(html).text_of("text")
    assert paths(html, "mark") == []
    one = Lines("t", [Series("a", [], []), Series("b", [1, 2], [3, 4])], "x", "y").html()
    assert "a (no data)" in one and "b (no data)" not in one
    assert "no data" not in Tags(one).text_of("text")


def test_axes_end_at_round_numbers():
    html = Lines("t", [Series("s", [5, 25], [-0.021, 0.034])], "x", "y").html()
    texts = Tags(html).text_of("text")
    assert texts[:5] == ["−0.04", "−0.02", "0.00", "0.02", "0.04"]
    assert texts[-7:] == ["5", "10", "15", "20", "25", "y", "x"]


def test_points_rise_with_y_and_run_with_x():
    html = Lines("t", [Series("s", [0, 10], [0, 10])], "x", "y").html()
    (line,) = paths(html, "line")
    assert line == "M56.0,272.0L548.0,34.0"


def test_a_given_range_is_kept_and_what_lies_outside_has_no_mark():
    html = Lines("t", [Series("s", [0, 1, 2], [1, 99, 2])], "x", "y", y_range=(0, 4)).html()
    assert len(paths(html, "mark")) == 2
    assert Tags(html).text_of("text")[:5] == ["0", "1", "2", "3", "4"]
    with pytest.raises(ValueError, match="rise"):
        Lines("t", [], "x", "y", y_range=(1, 1))


def test_series_refuses_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="'s': 2 x, 1 y"):
        Series("s", [1, 2], [1])
    with pytest.raises(ValueError, match="finite"):
        Series("s", [math.nan], [1])


def test_anchors_has_a_tick_for_each_stage_and_a_dot_for_each_anchor():
    html = Anchors("t", [("ours", [4, 0, 4]), ("none", [])], 5).html()
    tags = Tags(html)
    assert [str(a["d"]).count("M") for a in tags.all("path")] == [5, 5]
    assert [a["cx"] for a in tags.all("circle")] == ["8.0", "592.0"]
    labels = [a["aria-label"] for a in tags.all("svg", role="img")]
    assert labels == ["ours: anchors at stages 0, 4", "none: anchors at stages none"]
    assert "2 of 5" in tags.text_of("small")


@pytest.mark.parametrize("anchor", [-1, 5, 2.5])
def test_anchors_refuses_a_stage_there_is_not(anchor: int):
    with pytest.raises(ValueError, match=rf"'ours': anchor {anchor} "):
        Anchors("t", [("ours", [0, anchor])], 5)


def test_anchors_of_a_single_stage():
    assert Tags(Anchors("t", [("one", [0])], 1).html()).text_of("text") == ["0"]
    with pytest.raises(ValueError, match="at least one stage"):
        Anchors("t", [], 0)
