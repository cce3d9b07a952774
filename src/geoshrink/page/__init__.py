"""One self-contained HTML page: pictures compared side by side, tables, charts."""

from geoshrink.page.charts import Anchors, Lines, Series
from geoshrink.page.choice import Choice
from geoshrink.page.comparison import Comparison
from geoshrink.page.document import Page
from geoshrink.page.drawing import drawing
from geoshrink.page.folded import Folded
from geoshrink.page.media import Animation, Media, Picture
from geoshrink.page.section import Section
from geoshrink.page.shown import Shown
from geoshrink.page.sound import Sound
from geoshrink.page.table import Column, Table

__all__ = [
    "Anchors",
    "Animation",
    "Choice",
    "Column",
    "Comparison",
    "Folded",
    "Lines",
    "Media",
    "Page",
    "Picture",
    "Section",
    "Series",
    "Shown",
    "Sound",
    "Table",
    "drawing",
]
