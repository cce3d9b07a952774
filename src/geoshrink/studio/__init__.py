"""Studio: the full run and the accelerated one, live, on a page in the browser (gradio)."""
