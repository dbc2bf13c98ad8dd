"""Broken plans: statements, names, types and trees."""

from __future__ import annotations

from tests.ir.broken_plans import Broken
from tests.ir.plans_on_disk import text_of

_ONLY_ROUND = text_of("autoregressive")[text_of("autoregressive").index("round") :]

STATEMENTS = {
    "no_round": Broken("autoregressive", {_ONLY_ROUND: ""}, "plan", "plan"),
    "rounds_of_one_name": Broken(
        "schedule", {"round k0 {": "round k3 {", "otherwise k0": "otherwise k3"}, "plan", "plan"),
    "models_of_one_name": Broken(
        "staged", {"model draft": "model draft\nmodel draft"}, "plan", "plan",
        {"model draft": "model draft\nmodel other"}),
    "model_of_unknown_dtype": Broken(
        "staged", {"model draft": "model draft dtype=float33"}, "plan", "plan",
        {"model draft": "model draft dtype=float32"}),
    "rounds_without_schedule": Broken(
        "schedule", {text_of("schedule")[text_of("schedule").index("schedule hy") :]: ""},
        "schedule", "plan"),
    "guard_of_no_round": Broken("schedule", {"4096\" k3": "4096\" k5", "round k3": "round k0x"},
        "schedule", "schedule", {"4096\" k3": "4096\" k5", "round k3": "round k5"}),
    "round_never_run": Broken("schedule", {"otherwise k0": "otherwise k3"}, "schedule", "schedule"),
    "hysteresis_of_one": Broken(
        "schedule", {"hysteresis=0.1": "hysteresis=1.0"}, "schedule", "schedule",
        {"hysteresis=0.1": "hysteresis=0.99"}),
    "guard_reads_unknown": Broken(
        "schedule", {"batch <= 4": "width <= 4"}, "formula", "schedule",
        {"batch <= 4": "emitted <= 4"}),
    "guard_is_a_number": Broken(
        "schedule", {"batch <= 4 or context > 4096": "batch - 4"}, "formula", "schedule",
        {"batch <= 4 or context > 4096": "batch - 4 <= 0"}),
    "guard_is_code": Broken("schedule", {"batch <= 4": "print(batch)"}, "formula", "schedule"),
    "state_of_no_model": Broken("staged", {"= cache draft": "= cache drift"}, "state", "plan"),
    "state_declared_twice": Broken(
        "staged", {"state @dkv": "state @kv = cache target\nstate @dkv"}, "state", "plan",
        {"state @dkv": "state @more = cache target\nstate @dkv"}),
    "state_called_text": Broken(
        "staged", {"state @dkv": "state @text = cache draft\nstate @dkv"}, "state", "plan"),
    "view_of_no_whole_cache": Broken(
        "self_draft_view", {"view=@kv": "view=@part"}, "state", "plan"),
    "view_of_another_model": Broken(
        "sparse_cache_hierarchy", {"= cache tiny policy": "= cache tiny view=@kv policy"},
        "state", "plan"),
    "tree_deeper_than_large": Broken("jacobi_blocks", {"depth=8": "depth=9"}, "state", "plan"),
    "parents_out_of_order": Broken("lookahead", {"[-1, 0, 1,": "[-1, 1, 1,"}, "state", "plan"),
    "parents_too_few": Broken("lookahead", {"2, 3]": "2]"}, "state", "plan"),
    "depth_not_of_the_parents": Broken("lookahead", {"depth=5": "depth=4"}, "state", "plan"),
    "state_law_unknown": Broken(
        "parallel_draft_verify", {"how=draw)": "how=guessed)"}, "state", "plan",
        {"how=draw)": "how=given)"}),
    "source_unknown": Broken(
        "lookahead", {"source phrases": "source sentences"}, "state", "plan",
        {"source phrases(order=3, capacity=65536)": "source phrases"}),
    "source_parameter_of_another_kind": Broken(
        "lookahead", {"order=3,": "order=three,"}, "state", "plan", {"order=3,": "order=4,"}),
    "policy_unknown": Broken(
        "self_draft_view", {"sink_recent(sink=16)": "recent"}, "state", "plan",
        {"sink_recent(sink=16)": "retrieved"}),
    "read_only_source_updated": Broken(
        "token_recycling", {"scope=process": "scope=read_only"}, "state", "`update @adj"),
    "budget_of_nothing": Broken(
        "self_draft_view", {"budget=512": "budget=0"}, "size", "plan", {"budget=512": "budget=1"}),
    "context_backwards": Broken(
        "contrastive", {"law=stated": "law=stated context=9..1"}, "size", "plan",
        {"law=stated": "law=stated context=1..9"}),
}  # fmt: skip

NAMES_AND_TYPES = {
    "defined_twice": Broken("autoregressive", {"%l =": "%t ="}, "ssa", "`%t = forward"),
    "region_shadows": Broken(
        "staged", {"%g = lookup": "%t0 = lookup", "pick %g": "pick %t0", "accept %g": "accept %t0",
        "adopt %g": "adopt %t0"}, "ssa", "`%t0 = lookup"),
    "not_defined": Broken("staged", {"emit %a": "emit %b"}, "ssa", "`%e = emit %b"),
    "inside_a_region_only": Broken("staged", {"accept %c": "accept %m"}, "ssa", "`%a = accept %m"),
    "model_not_declared": Broken(
        "recurrent_heads", {"%q = forward head": "%q = forward hat"}, "declared", "forward hat"),
    "state_not_declared": Broken(
        "self_draft_view", {"refresh @part": "refresh @parts"}, "declared", "refresh @parts"),
    "state_of_another_kind": Broken(
        "token_recycling", {"update @adj": "update @kv"}, "declared", "`update @kv"),
    "cache_of_another_model": Broken(
        "staged", {"forward draft %n cache=@dkv": "forward target %n cache=@dkv"}, "declared",
        "forward target %n"),
    "text_is_not_updated": Broken(
        "token_recycling", {"update @adj": "update @text"}, "declared", "`update @text"),
    "rule_unknown": Broken(
        "autoregressive", {"target=%l": "target=%l rule=hopeful"}, "entry", "rule=hopeful",
        {"target=%l": "target=%l rule=greedy"}),
    "rule_parameter_unknown": Broken("heads", {"epsilon=": "epsilom="}, "entry", "epsilom="),
    "rule_parameter_out_of_range": Broken(
        "heads", {"epsilon=0.09": "epsilon=1.5"}, "entry", "epsilon=1.5",
        {"epsilon=0.09": "epsilon=1.0"}),
    "rule_parameter_of_another_kind": Broken(
        "heads", {"epsilon=0.09": "epsilon=small"}, "entry", "epsilon=small",
        {"epsilon=0.09": "epsilon=1"}),
    "measure_parameter_missing": Broken(
        "growing_tree", {"value(best=16)": "value"}, "entry", "measure %n value"),
    "law_unknown": Broken(
        "contrastive", {"contrastive(beta=0.5, alpha=0.1)": "hopeful"}, "entry", "law=hopeful",
        {"contrastive(beta=0.5, alpha=0.1)": "contrastive"}),
    "source_taught_what_it_cannot_learn": Broken(
        "lookahead", {"source phrases(": "source ngram("}, "type", "update @pool",
        {"source phrases(order=3": "source phrases(order=4"}),
    "continuations_that_are_not_merged": Broken(
        "token_recycling", {"at=%t0 children=4": "at=%t0 children=4 length=2 nodes=7"}, "type",
        "lookup @adj %t0", {"at=%t0 children=4": "at=%t0 children=4 nodes=4"}),
    "log_taught_rows": Broken(
        "distilled_while_serving", {"%t0 last=1": "%c logits=%l"}, "type", "update @log"),
    "rule_that_is_gone": Broken(
        "contrastive", {"rule=token": "rule=cascade"}, "entry", "rule=cascade",
        {"law=contrastive(beta=0.5, alpha=0.1)": "law=cascade"}),
    "formula_is_code": Broken(
        "skipped_layers", {"m < b\"": "m.real < b\""}, "formula", "compute \"m.real"),
    "formula_lacks_operand": Broken(
        "skipped_layers", {"m < b\"": "m < b*c\""}, "formula", "compute \"m < b*c"),
    "formula_ignores_operand": Broken(
        "skipped_layers", {"m < b\"": "m < 0.5\""}, "formula", "compute \"m < 0.5",
        {"m < b\" m=%m b=%b": "m < 0.5\" m=%m"}),
    "rows_for_a_tree": Broken("staged", {"accept %c": "accept %l"}, "type", "accept %l"),
    "number_for_a_flag": Broken(
        "early_exit_confident", {"when %go": "when %c"}, "type", "when %c"),
    "measure_of_the_wrong_thing": Broken(
        "skipped_layers", {"measure %q top1": "measure %n top1"}, "type", "measure %n top1",
        {"measure %q top1": "measure %q margin"}),
    "store_of_the_wrong_kind": Broken(
        "skipped_layers", {"store @bar %b2": "store @bar %c"}, "type", "store @bar %c",
        {"store @bar %b2": "store @bar %hit"}),
    "from_nowhere": Broken("staged", {"of=from at=%tip": "of=from"}, "type", "pick %g of=from"),
    "loop_carries_another_kind": Broken("staged", {"yield %m": "yield %q"}, "type", "repeat 2"),
    "paths_of_two_branches": Broken(
        "jacobi_blocks",
        {"otherwise=[%r]": "otherwise=[%e]", "yield %x": "%b = accept %g target=%l\n    yield %b",
        "@guess %w": "@guess %r"},
        "type", "when %empty"),
    "fewer_names_than_results": Broken(
        "lookahead", {"%lv, %lw = forward": "%lv = forward"}, "arity", "forward target %v %w"),
    "yields_of_another_number": Broken(
        "growing_tree", {"yield %n, %v until": "yield %n until"}, "arity", "repeat 8"),
    "nothing_to_run_on": Broken(
        "autoregressive", {"forward target %t": "forward target"}, "arity", "forward target"),
    "relabel_by_nothing": Broken(
        "jacobi_blocks", {"relabel %g logits=%l": "relabel %g"}, "arity", "relabel %g"),
    "update_by_nothing": Broken(
        "lookahead", {"%x last=3": "%x"}, "arity", "update @pool %x", {"last=3": "last=2"}),
    "best_and_worst": Broken(
        "growing_tree", {"of=all best=16": "of=all best=16 worst=3"}, "arity", "worst=3",
        {"of=all best=16": "of=all best=15"}),
}  # fmt: skip

TREES = {
    "nodes_of_another_tree": Broken(
        "merged_trees", {"grow %w at=%g logits=%r": "grow %w at=%a logits=%r"}, "lineage", "at=%a"),
    "judged_by_rows_of_a_sibling": Broken(
        "merged_trees", {"forward target %c": "forward target %b", "accept %c": "accept %a"},
        "lineage", "accept %a", {"forward target %c": "forward target %a",
        "accept %c": "accept %a"}),
    "relabelled_nodes_have_no_rows": Broken(
        "jacobi_blocks", {"  %a = accept %g target=%l\n": "", "  %e = emit %a\n": "",
        "  commit @kv %e\n": "", "  %r = reroot": "  %a = accept %n target=%l\n  %e = emit %a\n"
        "  commit @kv %e\n  %r = reroot"}, "lineage", "accept %n"),
    "rows_of_deeper_nodes": Broken(
        "static_tree", {"at=%f1 logits=%q1 children=[2, 1]": "at=%t0 logits=%q1 children=3"},
        "lineage", "%t2 = grow", {"children=[2, 1]": "children=[1, 2]"}),
    "child_counts_of_another_length": Broken(
        "heads", {"children=[3, 2]": "children=[3]"}, "children", "children=[3]",
        {"children=[3, 2]": "children=2"}),
    "pick_beyond_the_tree": Broken(
        "heads", {"nodes=[0, 1]": "nodes=[0, 4]"}, "children", "nodes=[0, 4]",
        {"nodes=[0, 1]": "nodes=[0, 3]"}),
    "pick_twice": Broken("heads", {"nodes=[0, 1]": "nodes=[1, 1]"}, "children", "nodes=[1, 1]"),
    "map_of_another_length": Broken(
        "lookahead", {"10, 11]": "10]"}, "children", "relabel %w"),
    "map_beyond_the_tree": Broken(
        "lookahead", {"10, 11]": "10, 12]"}, "children", "relabel %w", {"10, 11]": "10, 10]"}),
    "map_to_the_root": Broken(
        "lookahead", {"10, 11]": "10, -1]"}, "size", "relabel %w", {"10, 11]": "10, 0]"}),
    "mixed_with_rows_of_no_child": Broken(
        "contrastive", {"%m = mix %l %c": "%d = relabel %c token=7\n  %k = forward target %d "
        "cache=@kv\n  %m = mix %k %d", "accept %c target=%m": "accept %d target=%m"},
        "lineage", "mix %k %d"),
    "fill_below_many": Broken(
        "mask_predict", {"%zero =": "%p = place %b0 at=%b0 tokens=[1] upto=13\n  %zero ="},
        "children", "upto=13"),
    "children_negative": Broken("heads", {"children=4": "children=-4"}, "size", "children=-4"),
    "pending_negative": Broken(
        "autoregressive", {"pending=1": "pending=-1"}, "size", "pending=-1",
        {"pending=1": "pending=7"}),
    "span_backwards": Broken(
        "early_exit_verified", {"layers=[8:32]": "layers=[32:8]"}, "size", "layers=[32:8]"),
    "match_backwards": Broken(
        "prompt_lookup", {"match=[1, 3]": "match=[3, 1]"}, "size", "match=[3, 1]",
        {"match=[1, 3]": "match=[3, 3]"}),
    "uniforms_none": Broken("draft_chain", {"uniform 1 ": "uniform 0 "}, "size", "uniform 0"),
    "tree_too_large": Broken(
        "heads", {"children=4": "children=1000000000"}, "size", "children=1000000000"),
    "chain_too_long": Broken("prompt_lookup", {"length=10": "length=2049"}, "size", "length=2049"),
    "loop_too_long": Broken("growing_tree", {"repeat 8": "repeat 9000"}, "size", "grow %t"),
    "loop_of_nothing_too_long": Broken(
        "autoregressive", {"%l =": "repeat 5000 {\n    repeat 5000 {\n    }\n  }\n  %l ="},
        "size", "repeat 5000", {"%l =": "repeat 50 {\n    repeat 50 {\n    }\n  }\n  %l ="}),
}  # fmt: skip
