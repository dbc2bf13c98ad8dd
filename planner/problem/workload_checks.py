"""Checks of a workload: lengths, sampling, the rate of requests, and prompts."""

from __future__ import annotations

from specplan.planner.problem.errors import Errors, Origin, nearest
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.workload_files import read_prompts, read_trace

MINIMUM_PROMPTS = 4
"""Fewer prompts than this give acceptance rates without a usable interval."""


def check_workload(problem: Problem, origin: Origin) -> Errors:
    """Lengths that are missing or given twice, repeated numbers, sampling without effect."""
    workload = problem.workload
    if workload.prompt_lengths is not None and workload.prompt_tokens is not None:
        yield origin.usage(
            "workload.prompt_lengths",
            "prompt_tokens and prompt_lengths are both given",
            "Keep one of the two.",
        )
    prompt = "prompt_tokens" if workload.prompt_lengths is None else "prompt_lengths"
    lengths = {prompt: workload.lengths or None, "output_tokens": workload.output_tokens}
    for name, value in lengths.items():
        if workload.trace is not None and value is not None:
            yield origin.usage(
                f"workload.{name}",
                f"{name} and trace are both given",
                "Keep the trace, or prompt_tokens and output_tokens.",
            )
            break  # the remedy is for both
        if workload.trace is None and value is None:
            yield origin.usage(
                f"workload.{name}",
                "the lengths of the requests are not known",
                f"Give {name} in tokens, or a trace file instead of both lengths.",
            )
    for key, what, numbers in (
        ("batch_sizes", "batch size", workload.batch_sizes),
        ("prompt_lengths", "prompt length", workload.prompt_lengths or ()),
    ):
        for index, number in enumerate(numbers):
            if number in numbers[:index]:
                yield origin.usage(
                    f"workload.{key}.{index}",
                    f"the {what} {number} stands twice",
                    "Keep one of the two.",
                )
    for name, narrowing, off in (("top_k", workload.top_k, 0), ("top_p", workload.top_p, 1.0)):
        if workload.greedy and narrowing != off:
            yield origin.usage(
                f"workload.{name}",
                f"{name} = {narrowing} has no effect at temperature 0, which is greedy decoding",
                f"Leave {name} out, or give a temperature above 0.",
            )
            break  # a temperature mends both
    if workload.trace is not None:
        with origin.key("workload.trace"):
            read_trace(workload.trace)


def check_request_rate(problem: Problem, origin: Origin) -> Errors:
    """A request rate without the objective goodput, or the objective without a rate."""
    given = problem.workload.request_rate is not None
    if problem.objective == "goodput" and not given:
        yield origin.usage(
            "workload.request_rate",
            "goodput is asked for, and how many requests arrive is not known",
            "Give request_rate in requests per second, or another objective.",
        )
    if problem.objective != "goodput" and given:
        yield origin.usage(
            "workload.request_rate",
            f'request_rate has no effect on the objective "{problem.objective}"',
            'Leave request_rate out, or write "objective: goodput".',
        )


def check_prompts(problem: Problem, origin: Origin) -> Errors:
    """A file of prompts that cannot be read, or has too few prompts of the task."""
    workload = problem.workload
    if workload.prompts is None:
        return
    with origin.key("workload.prompts"):
        prompts = read_prompts(workload.prompts)
    if workload.task:
        tasks = {prompt.task for prompt in prompts}
        if workload.task not in tasks:
            yield origin.usage(
                "workload.task",
                f'no prompt of {workload.prompts} has the task "{workload.task}"',
                nearest(workload.task, tasks - {""}),
            )
            return
        prompts = [prompt for prompt in prompts if prompt.task == workload.task]
    if len(prompts) < MINIMUM_PROMPTS:
        of_task = f' of the task "{workload.task}"' if workload.task else ""
        yield origin.usage(
            "workload.prompts",
            f"the file has {len(prompts)} prompts{of_task}, at least {MINIMUM_PROMPTS} are needed",
            "Add prompts; 40 or more give a useful interval of the acceptance.",
        )
