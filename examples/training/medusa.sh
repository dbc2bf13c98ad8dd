#!/bin/sh
# Trains Medusa heads for the reference target on this machine, and races the best plan with them
# against no speculation and against the best plan with the reference draft model:
#
#     sh examples/training/medusa.sh [STEPS]
#
# Ten to fifteen minutes on two cores with 1600 steps. Killed, it goes on where it was. Everything
# is written to .work/medusa.
set -eu
cd "$(dirname "$0")/../.."
steps=${1:-1600} work=.work/medusa problem=examples/training/problem.yaml
PATH=.venv/bin:$PATH

# Heads draft along what the target writes: prompts of the library, and its greedy answers.
python examples/training/texts.py --out $work/texts.jsonl --count 768 \
  --target examples/reference_models/target --tokens 128

# The target's whole distribution is learned, so at temperature 1.
specplan train $problem --stage train --drafter medusa --out $work/heads --steps "$steps" \
  --prompts $work/texts.jsonl --as-is --warmup 60 \
  --device cpu-generic --set workload.temperature=1 --set 'models.drafts=[]'

# The best plan with the heads, with the draft model, and without either, as compiled rounds.
python examples/training/race.py $problem
