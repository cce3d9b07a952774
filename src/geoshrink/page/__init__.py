"""One self-contained HTML page: pictures compared side by side, tables, charts."""

from geoshrink.page.charts import Anchors as Anchors
from geoshrink.page.charts import Lines as Lines
from geoshrink.page.charts import Series as Series
from geoshrink.page.comparison import Comparison as Comparison
from geoshrink.page.document import Page as Page
from geoshrink.page.document import add_files as add_files
from geoshrink.page.markup import Section as Section
from geoshrink.page.media import Animation as Animation
from geoshrink.page.media import Media as Media
from geoshrink.page.media import Picture as Picture
from geoshrink.page.table import Column as Column
from geoshrink.page.table import Table as Table
