"""GeoShrink in SD.Next: copy this file into its folder scripts/, and geoshrink into its venv.

A slider in the tabs says by how much the steps that call the model are divided; 1 is off. What was
done is written into the picture's parameters. SD.Next's own caches (cache-dit, TeaCache, first
block cache …) must be off: with one of them on, the run stops with an error that says so.

SD.Next makes other pipelines of the loaded one for image to image, inpainting and the second pass,
often with a new scheduler. Those run exactly, and the parameters say so.

Tested with imitations of SD.Next's modules (of July 2026) around a tiny diffusers pipeline:
tests/test_examples_hosts.py. Not tested in SD.Next itself.
"""

import gradio as gr
from modules import script_callbacks, scripts_manager, shared  # type: ignore

import geoshrink

HANDLE = "geoshrink_handle"  # of the processing object


class GeoShrink(scripts_manager.Script):
    def title(self):
        return "GeoShrink"

    def show(self, is_img2img):
        return scripts_manager.AlwaysVisible

    def ui(self, is_img2img):
        return [gr.Slider(1, 8, value=1, step=0.25, label="GeoShrink: fewer model calls")]

    def process(self, p, speedup=1, *args):
        remove(p)
        if speedup > 1:
            setattr(p, HANDLE, geoshrink.accelerate(shared.sd_model, speedup=speedup))

    def postprocess_batch(self, p, *args, **kwargs):
        handle = getattr(p, HANDLE, None)
        if handle is not None:
            report = handle.report  # of the latest run: none if another pipeline ran
            told = "not accelerated: another pipeline ran" if report is None else report.summary()
            p.extra_generation_params["GeoShrink"] = told


def remove(p):
    """The pipeline as it was. Called behind errors and interrupts, too, as postprocess is not."""
    handle = vars(p).pop(HANDLE, None)
    if handle is not None:
        handle.remove()


script_callbacks.on_after_process(remove)
