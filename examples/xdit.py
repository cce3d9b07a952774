"""xDiT's runner (xfuser 0.7.0) with fewer model calls, on every rank alike.

    export GEOSHRINK=speedup=3
    torchrun --nproc_per_node 2 examples/xdit.py --model FLUX.1-dev --ulysses_degree 2 --prompt …

The runner's pipelines are diffusers' own, and each rank has one. Only the transformer is split over
the ranks (Ulysses, ring, guidance, tensors): its forward takes its part of the tokens and gathers
the whole output. So every scheduler sees whole latents, and no process group is needed for the
statistics. Where the model is called is decided by the plan alone, so that ranks agree.

Refused, because it would be wrong or would wait for ever:
  PipeFusion                       its patches are of different steps, and are stepped one by one
  target_db, learn                 each rank would decide by what it measures
  --cache_method                   use one or the other
  --use_hybrid_attn_schedule, --use_hybrid_gemm_schedule   they count the transformer's calls
The older xFuser…Pipeline classes step parts of the latents and are not for this file.

Tested: an imitation of the runner whose transformer gathers its output over 2 processes on the CPU
(tests/test_examples_hosts.py). Not tested: xDiT itself, which needs GPUs.
"""

from typing import Any

import geoshrink
from geoshrink.hosts.serving import VARIABLE, Policy

ALONE = ("cache_method", "use_hybrid_attn_schedule", "use_hybrid_gemm_schedule")
MEASURED = ("target_db", "learn")


def accelerate(model: Any, **options: Any) -> geoshrink.Handle:
    """The handle of an xFuserModel that was initialised; call it on every rank."""
    config = model.config
    if config.pipefusion_parallel_degree > 1:
        raise ValueError("geoshrink and PipeFusion: use --ulysses_degree or --ring_degree instead")
    for name in ALONE:
        if getattr(config, name, None):
            raise ValueError(f"geoshrink and --{name} {getattr(config, name)}: leave out one")
    for name in MEASURED:
        if options.get(name) is not None:
            raise ValueError(f"{name}={options[name]!r}: ranks may disagree; give a budget")
    return geoshrink.accelerate(model.pipe, **options)


def main() -> None:
    from xfuser import xFuserArgs  # type: ignore
    from xfuser.config import FlexibleArgumentParser  # type: ignore
    from xfuser.runner import xFuserModelRunner  # type: ignore

    options, why = Policy.from_environment().options()
    if options is None:
        raise SystemExit(why or f"say what is asked: export {VARIABLE}=speedup=3")
    args = vars(xFuserArgs.add_runner_args(FlexibleArgumentParser()).parse_args())
    runner = xFuserModelRunner(args)
    given = runner.preprocess_args(args)
    runner.initialize(given)
    with accelerate(runner.model, **options) as handle:
        output, timings = runner.run(given)
    runner.save(output=output, timings=timings)
    print(handle.report.summary() if handle.report else "not accelerated")
    runner.cleanup()


if __name__ == "__main__":
    main()
