"""One self-contained HTML page: pictures compared side by side, tables, charts."""

from geoshrink.page.charts import Anchors, Lines, Series
from geoshrink.page.comparison import Comparison
from geoshrink.page.document import Page, add_files
from geoshrink.page.markup import Section
from geoshrink.page.media import Animation, Media, Picture
from geoshrink.page.table import Column, Table

__all__ = [
    "Anchors",
    "Animation",
    "Column",
    "Comparison",
    "Lines",
    "Media",
    "Page",
    "Picture",
    "Section",
    "Series",
    "Table",
    "add_files",
]
