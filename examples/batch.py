"""Many prompts through one pipeline; a second start makes only what is missing.

    python examples/batch.py                                  # four fruits, on your CPU
    python examples/batch.py ~/models/FLUX.1-dev prompts.txt --budget 10 --out pictures

Needs geoshrink[batch,diffusers], and geoshrink-bench for the fruits. On a cluster the same call
takes engine=geoshrink.batch.OnRay("auto"); on the command line it is `geoshrink batch`.
"""

import argparse

import pyarrow.parquet as parquet

from geoshrink import batch

FRUITS = ["Kiwi 1", "Banana 1", "Corn 1", "Strawberry 1"]

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", default="geoshrink_bench.zoo.pipelines:pipeline")
parser.add_argument("prompts", nargs="?", default=FRUITS, help="text, JSON lines or Parquet")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--budget", type=int, default=6, help="model calls")
parser.add_argument("--height", type=int, help="default: the model's own")
parser.add_argument("--width", type=int)
parser.add_argument("--out", default="pictures", help="a folder, or an address like s3://…")
args = parser.parse_args()

settings = {"steps": args.steps, "height": args.height, "width": args.width}
done = batch.run(args.model, args.prompts, args.out, settings=settings, budget=args.budget)
print(f"{args.out}: {done.line()}, {done.calls} model calls")
for row in parquet.read_table(f"{args.out}/results.parquet").to_pylist():
    print(f"{row['prompt']}: {row['file']}, {row['calls']} calls")
