"""The same subjects by several methods: a wipe between two of them, and all on one sheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product

from geoshrink.page.markup import Markup, element, fill, join, paragraphs, section
from geoshrink.page.media import Media

#: Two layers, which the script fills, under a range input that takes the keyboard.
STAGE = (
    '<div><div class="stage" title="Drag to wipe; x exchanges left and right">'
    '<div class="layer left"></div><div class="layer right"></div><div class="handle"></div>'
    '<input type="range" class="wipe" min="0" max="100" value="50" aria-keyshortcuts="x" '
    'aria-label="Wipe between left and right; x exchanges them"></div>{reading}</div>'
)
READING = '<div class="reading"><output class="left"></output><output class="right"></output></div>'
SUBJECT = (
    '<button type="button" data-subject="{i}" aria-pressed="{pressed}">'
    '<span class="media" aria-hidden="true"></span>{subject}</button>'
)
#: The script copies what stands in `.media`, so each picture is held once.
CELL = (
    '<td><button type="button" data-subject="{i}" data-method="{j}" title="{subject}, {method}">'
    '<span class="media">{shown}</span><span class="score">{score}</span></button></td>'
)


@dataclass(frozen=True)
class Comparison:
    """Media for every (subject, method) pair.

    `groups` gives methods a heading they share ('B = 10'), `scores` a short text for a pair
    ('31.2 dB'), `start` the two methods shown first: by default the first and the last.
    """

    title: str
    subjects: Sequence[str]
    methods: Sequence[str]
    media: Mapping[tuple[str, str], Media]
    caption: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[tuple[str, str], str] = field(default_factory=dict)
    start: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        _require_distinct("subject", self.subjects)
        _require_distinct("method", self.methods)
        for subject, method in product(self.subjects, self.methods):
            if (subject, method) not in self.media:
                raise ValueError(f"no media for subject {subject!r}, method {method!r}")
        for subject, method in self.scores:
            _require_known("subject", subject, self.subjects)
            _require_known("method", method, self.methods)
        for method in (*self.groups, *(self.start or ())):
            _require_known("method", method, self.methods)

    def html(self) -> str:
        left, right = self.start or (self.methods[0], self.methods[-1])
        choices = (self._choice("Left", left), self._choice("Right", right))
        caption = paragraphs(self.caption, "caption")
        panel = element("div", *choices, self._subjects(), caption, class_="panel")
        stage = fill(STAGE, reading=Markup(READING) if self.scores else "")
        viewer = element("div", stage, panel, class_="viewer")
        return section("comparison", self.title, viewer, self._sheet())

    def _choice(self, side: str, chosen: str) -> Markup:
        def options(methods: Iterable[str]) -> Markup:
            return join(
                element("option", m, value=self.methods.index(m), selected=m == chosen)
                for m in methods
            )

        groups = join(
            element("optgroup", options(methods), label=group) if group else options(methods)
            for group, methods in self._grouped()
        )
        return element("label", side, element("select", groups, class_=side.lower()))

    def _subjects(self) -> Markup:
        buttons = (
            fill(SUBJECT, i=i, pressed="false" if i else "true", subject=subject)
            for i, subject in enumerate(self.subjects)
        )
        return element("div", *buttons, class_="subjects", role="group", aria_label="Subject")

    def _sheet(self) -> Markup:
        names = join(element("th", element("span", s), scope="col") for s in self.subjects)
        head = element("thead", element("tr", element("td"), names))
        bodies = join(self._sheet_group(*group) for group in self._grouped())
        return element("div", element("table", head, bodies, class_="sheet"), class_="scroll")

    def _sheet_group(self, group: str, methods: Iterable[str]) -> Markup:
        heading = element(
            "th", element("span", group), scope="rowgroup", colspan=1 + len(self.subjects)
        )
        rows = (
            element("tr", element("th", m, scope="row"), *(self._cell(s, m) for s in self.subjects))
            for m in methods
        )
        return element("tbody", element("tr", heading) if group else Markup(), *rows)

    def _cell(self, subject: str, method: str) -> Markup:
        i, j = self.subjects.index(subject), self.methods.index(method)
        shown = Markup(self.media[subject, method].html())
        score = self.scores.get((subject, method), "")
        return fill(CELL, i=i, j=j, subject=subject, method=method, shown=shown, score=score)

    def _grouped(self) -> list[tuple[str, list[str]]]:
        """Neighbouring methods that share a group, in the order given."""
        runs = groupby(self.methods, key=lambda method: self.groups.get(method, ""))
        return [(group, list(methods)) for group, methods in runs]


def _require_distinct(what: str, names: Sequence[str]) -> None:
    if not names:
        raise ValueError(f"a comparison needs at least one {what}")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} {name!r} is given twice")


def _require_known(what: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; there are {', '.join(map(repr, names))}")
