"""What is remembered of a run: two tensors per slot, the open cell, and the record of it."""

from .cell import Coefficients, History
from .correction import Corrector
from .masks import check_mask
from .record import Record, on_host
from .refinement import RefinedHistory, history_of, refined_plan
from .reserve import Reserve
from .sharding import check_group
from .slot import kind_of
