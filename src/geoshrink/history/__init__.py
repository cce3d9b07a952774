"""What is remembered of a run: two tensors per slot, the open cell, and the record of it."""

from .cell import Coefficients as Coefficients
from .cell import History as History
from .masks import check_mask as check_mask
from .record import Record as Record
from .record import on_host as on_host
from .refinement import RefinedHistory as RefinedHistory
from .refinement import history_of as history_of
from .reserve import Reserve as Reserve
from .sharding import check_group as check_group
from .slot import kind_of as kind_of
