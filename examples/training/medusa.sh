#!/bin/sh
# Trains Medusa heads for the reference target on this machine, and measures what they are worth:
#
#     sh examples/training/medusa.sh [STEPS]
#
# About ten minutes on two cores with 800 steps, of which training takes six. Killed, it goes on
# where it was. Everything is written to .work/medusa.
set -eu
cd "$(dirname "$0")/../.."
steps=${1:-800} work=.work/medusa problem=examples/training/problem.yaml
PATH=.venv/bin:$PATH

[ -f $work/texts.jsonl ] ||
  python examples/training/texts.py --out $work/texts.jsonl --count 100000 --whole

# The target's whole distribution is learned, so at temperature 1, and from the texts as they stand.
specplan train $problem --stage train --drafter medusa --out $work/heads --steps "$steps" \
  --prompts $work/texts.jsonl --as-is --warmup 60 \
  --device cpu-generic --set workload.temperature=1 --set 'models.drafts=[]'

# The best plan of all, and then the best of every kind, measured.
specplan optimize $problem --out $work/bundle
specplan bench $work/bundle --kinds --limit 12 --repeats 2 --no-stock
