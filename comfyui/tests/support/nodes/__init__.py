"""Test nodes for ComfyUI: inputs without files, results as files, counters, failures."""

from .control import TestControl
from .inputs import TestConditioning, TestLatent
from .outputs import TestCounts, TestSave
from .watching import TestCount, TestFail, TestSlow

NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in (
        TestConditioning,
        TestControl,
        TestCount,
        TestCounts,
        TestFail,
        TestLatent,
        TestSave,
        TestSlow,
    )
}
