"""Plans problems and runs bundles for `specplan check`, in this environment or in another one.

The Python of another environment, whose specplan may be older, runs this file: it uses only public
names of the package, and no other file of `checks`. It reads one JSON object per line from stdin
and answers each with one line on stdout, `{"answer": ...}` or
`{"error": ..., "exit_code": ...}`:

    {"do": "version"}
    {"do": "plan", "problem": PATH}
    {"do": "open", "bundle": PATH}
    {"do": "run", "prompts": [TEXT, ...], "output_tokens": COUNT, "seed": SEED}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]


def answer_of(problem: str) -> Answer:
    """The plan of a problem as text, and its estimates.

    Args:
        problem: path of a problem file.

    Returns:
        `plan`, without the digests of its models, and `prices`: for the chosen plan and for the
        best one of each method its setting in `words` and, by load, seconds per token and per
        request (medians), and bytes.
    """
    import specplan

    return described(specplan.optimize(problem))


def described(result: Any) -> Answer:
    """A `specplan.Result` as an answer; see `answer_of`."""
    import specplan

    best: dict[str, Any] = {}
    for candidate in result.candidates:
        if candidate.admissible:
            known = best.get(candidate.method)
            if known is None or _score(candidate) < _score(known):
                best[candidate.method] = candidate
    prices = {name: _prices(candidate) for name, candidate in sorted(best.items())}
    chosen = _prices(result.search.chosen)
    plan = re.sub(' (digest|path)="[^"]*"', "", specplan.print_plan(result.plan))
    return {"plan": plan, "prices": {"chosen": chosen, **prices}}


def _score(candidate: Any) -> float:
    return float(sum(estimate.seconds_per_token.median for estimate in candidate.estimates))


def _prices(candidate: Any) -> Answer:
    loads = {}
    for estimate in candidate.estimates:
        load = f"batch {int(estimate.batch)}, prompt {int(estimate.prompt_tokens)}"
        loads[load] = {
            "seconds per token": _rounded(estimate.seconds_per_token.median),
            "seconds per request": _rounded(estimate.request_seconds.median),
            "bytes": _rounded(estimate.memory.total),
        }
    return {"words": f"{candidate.method} {candidate.words}".strip(), "loads": loads}


def _rounded(number: Any) -> float:
    """Rounded to ten digits: further ones differ between processors."""
    return float(f"{float(number):.10g}")


class Runner:
    """An open bundle.

    Args:
        bundle: its folder.
    """

    def __init__(self, bundle: str) -> None:
        import specplan

        self.decoder = specplan.Decoder(bundle)

    def run(self, prompts: list[str], output_tokens: int, seed: int) -> Answer:
        """Continue some prompts as one batch: seconds, emitted tokens, and a digest of them."""
        import specplan

        settings = specplan.Settings(max_new_tokens=output_tokens, seed=seed)
        start = time.perf_counter()
        done = self.decoder.generate(prompts, settings)
        seconds = time.perf_counter() - start
        outputs = [list(item.tokens) for item in done.completions]
        digest = hashlib.sha256(json.dumps(outputs).encode()).hexdigest()
        return {"seconds": seconds, "tokens": sum(map(len, outputs)), "outputs": digest}


def serve() -> None:
    """Answer until stdin ends; libraries print to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runners: list[Runner] = []

    def version() -> Answer:
        import specplan

        return {"specplan": specplan.__version__, "python": sys.version.split()[0]}

    def open_bundle(bundle: str) -> Answer:
        runners[:] = [Runner(bundle)]
        return {}

    ways: dict[str, Callable[..., Answer]] = {
        "version": version,
        "plan": answer_of,
        "open": open_bundle,
        "run": lambda **about: runners[0].run(**about),
    }
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            reply: dict[str, Any] = {"answer": ways[asked.pop("do")](**asked)}
        except Exception as error:
            code = getattr(error, "exit_code", 4 if isinstance(error, ImportError) else 70)
            reply = {"error": f"{type(error).__name__}: {error}", "exit_code": code}
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    serve()
