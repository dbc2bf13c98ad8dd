"""Broken plans: draws, what is written and emitted, caches, and laws."""

from __future__ import annotations

from tests.ir.broken_plans import Broken

_LOOP = (
    '  %l0 = forward target {} cache=@kv pending=1\n  %no = compute "emitted > 0"\n'
    "  %l = repeat 1 (%lt = %l0) only=%no {{\n    %ll = forward target %t3",
    "cache=@kv pending=1\n    yield %ll until=%no\n  }\n  %v",
)
"""Rows of a loop that may take no trip; then it gives those of other nodes."""
ROUNDS = {
    "a_source_without_a_beginning": Broken(
        "lookahead", {"match=[1, 1]": "match=[0, 1]"}, "type", "lookup @pool"),
    "stream_read_twice": Broken(
        "static_tree", {"stream=draft offset=3": "stream=draft offset=2"}, "stream", "offset=2",
        {"stream=draft offset=3": "stream=other offset=2"}),
    "stream_read_by_two_loops": Broken(
        "merged_trees", {"stream=wide": "stream=small"}, "stream", "stream=small",
        {"stream=wide": "stream=small offset=3"}),
    "numbers_used_twice": Broken(
        "static_tree", {"by=%u1": "by=%u0"}, "stream", "by=%u0"),
    "numbers_used_in_every_trip": Broken(
        "draft_chain", {"    %u = uniform 1 stream=draft\n": "",
        "%t0 = root": "%t0 = root\n  %u = uniform 1 stream=draft"}, "stream", "by=%u"),
    "committed_and_not_emitted": Broken(
        "staged", {"commit @dkv %e": "commit @dkv %a"}, "emit", "commit @dkv %a"),
    "emitted_twice": Broken(
        "autoregressive", {"commit @kv %e": "%e2 = emit %a\n  commit @kv %e"}, "emit",
        "%e2 = emit %a"),
    "emitted_from_below_the_root": Broken(
        "draft_chain", {"  %a =": "  %z = pick %c of=leaves\n  %a =", "by=%v": "by=%v at=%z"},
        "emit", "%e = emit %a"),
    "never_emitted": Broken(
        "autoregressive", {"  %e = emit %a\n  commit @kv %e\n": "", "pending=1":
        "pending=1 write=scratch"}, "emit", "round decode"),
    "root_has_no_row": Broken(
        "draft_chain", {"  %l = forward target %c": "  %n0 = pick %c of=all\n  %l = forward target"
        " %n0"}, "progress", "accept %c"),
    "root_may_have_no_row": Broken(
        "static_tree", {"%l = forward target %t3": "%k = pick %t3 of=all best=4\n  %l = forward "
        "target %k"}, "progress", "accept %t3"),
    "root_of_a_loop_without_trips_has_no_row": Broken(
        "static_tree", {"%l = forward target %t3": "%k = pick %t3 of=all\n" + _LOOP[0].format("%k"),
        "cache=@kv pending=1\n  %v": _LOOP[1]}, "progress", "accept %t3",
        {"%l = forward target %t3": _LOOP[0].format("%t3"),
        "cache=@kv pending=1\n  %v": _LOOP[1]}),
    "nothing_to_emit": Broken(
        "mask_predict", {"accept %b rule=all": "accept %t0 rule=all"}, "progress", "accept %t0"),
    "written_and_never_committed": Broken(
        "staged", {"  commit @dkv %e\n": ""}, "commit", "forward draft"),
    "track_never_committed": Broken(
        "block_drafter", {"  commit @h %e\n": ""}, "commit", "keep=@h"),
    "committed_twice": Broken(
        "autoregressive", {"commit @kv %e": "commit @kv %e\n  commit @kv %e"}, "commit",
        "commit @kv %e"),
    "view_written_for_good": Broken(
        "sparse_cache_hierarchy", {"write=scratch": "", "commit @kv %e":
        "commit @kv %e\n  commit @part %e"}, "view", "cache=@part"),
    "skipped_blocks_written_for_good": Broken(
        "skipped_layers", {" write=scratch": ""}, "view", "skip="),
    "whole_cache_rebuilt": Broken(
        "self_draft_view", {"refresh @part": "refresh @kv"}, "view", "refresh @kv"),
    "stored_tree_too_large": Broken(
        "parallel_draft_verify", {"%e nodes=3": "%e nodes=4"}, "capacity", "store @window",
        {"%e nodes=3": "%e nodes=2"}),
    "stored_tree_branches": Broken(
        "jacobi_blocks", {"of=leaves": "of=all best=1"}, "capacity", "store @guess"),
    "stored_tree_of_another_shape": Broken(
        "lookahead", {"%n = relabel %w": "%y = prune %x to=%f\n  %n = relabel %w", "@window %n":
        "@window %y"}, "capacity", "store @window"),
    "lanes_write_one_cache": Broken(
        "predictive_pipeline", {"%f cache=@kv layers=[0:16]": "%f cache=@kv layers=[16:32]",
        "model target": "model target\nassume law=free"}, "lanes", "forward target %f"),
    "lanes_write_one_track": Broken(
        "predictive_pipeline", {"layers=[16:32] features=@x": "layers=[16:32] features=@x keep=@x",
        "model target": "model target\nassume law=free"}, "lanes", "forward target %f"),
}  # fmt: skip
CACHES = {
    "text_never_caught_up": Broken(
        "staged", {" pending=3": ""}, "residency", "forward draft",
        {"cache=@kv pending=1": "cache=@kv"}),
    "upper_layers_never_caught_up": Broken(
        "early_exit_confident", {" pending=8 layers=[8:32]": " layers=[8:32]"}, "residency",
        "layers=[8:32]"),
    "parent_never_run": Broken(
        "static_tree", {"nodes=[0, 1]": "nodes=[0]", "children=[2, 1]": "children=[2]",
        "forward draft %f1 cache=@dkv": "forward draft %t0 cache=@dkv levels=2",
        "forward draft %f2": "forward draft %k",
        "%q2 =": "%k = pick %t2 of=newest\n  %q2 =", "uniform 9 ": "uniform 8 "},
        "residency", "forward draft %k"),
    "attends_to_scratch": Broken(
        "skipped_layers", {"%l = forward target %c": "%k = pick %c of=all\n  %r = forward target "
        "%t0 cache=@kv pending=1\n  %l0 = pick %c of=all nodes=[5]\n  %y = forward target %l0 "
        "cache=@kv\n  %l = forward target %c"}, "residency", "forward target %l0",
        {"%l = forward target %c": "%r = forward target %t0 cache=@kv pending=1\n"
        "  %l = forward target %c"}),
    "drafter_starves": Broken(
        "draft_chain", {"pending=2": "pending=1"}, "starvation", "forward draft %f",
        {"pending=2": "pending=3"}),
    "drafter_of_merged_trees_starves": Broken(
        "static_tree", {"%l = forward": "%t4 = grow %t3 at=%f1 logits=%q1 children=1\n"
        "  %f4 = pick %t4 of=newest\n  %q4 = forward target %t4 cache=@kv pending=1\n"
        "  %t5 = grow %t4 at=%f4 logits=%q4\n  %l = forward", "target %t3": "target %t5",
        "accept %t3": "accept %t5", "uniform 9 ": "uniform 13 "}, "starvation",
        "forward draft %t0", {"%l = forward": "%t4 = grow %t3 at=%f1 logits=%q1 children=1\n"
        "  %f4 = pick %t4 of=newest\n  %q4 = forward target %t4 cache=@kv pending=1\n"
        "  %t5 = grow %t4 at=%f4 logits=%q4\n  %l = forward", "target %t3": "target %t5",
        "accept %t3": "accept %t5", "uniform 9 ": "uniform 13 ", "pending=2": "pending=3"}),
    "cache_of_text_starves": Broken(
        "expand_rerank", {"pending=7": "pending=6"}, "starvation", "forward head %t0",
        {"pending=7": "pending=8"}),
    "features_never_kept": Broken(
        "heads", {" keep=@h": "", "  commit @h %e\n": ""}, "features", "features=@h"),
    "features_of_another_layer": Broken(
        "early_exit_confident", {"track target layer=8": "track target layer=7"}, "features",
        "layers=[8:32]"),
    "features_inside_the_stack": Broken(
        "recurrent_heads", {"features=@s shift=1": "features=@s shift=1 layers=[1:2]",
        "@s = track head layer=last": "@s = track head layer=2"}, "features", "layers=[1:2]"),
    "kept_layer_not_run": Broken(
        "early_exit_confident", {"layers=[0:8]": "layers=[0:7]"}, "features", "layers=[0:7]"),
    "shift_of_nothing": Broken(
        "autoregressive", {"pending=1": "pending=1 shift=1"}, "features", "shift=1"),
}  # fmt: skip

_DROPPED = "lossless", "`%e = emit %a"
LAWS = {
    "rule_changes_the_law": Broken("heads", {"assume law=free\n": ""}, *_DROPPED),
    "rows_are_mixed": Broken("contrastive", {"assume law=stated\n": ""}, *_DROPPED),
    "rows_of_a_lower_layer": Broken(
        "early_exit_verified", {"target=%l": "target=%low", "  %a =": "  %low = forward target %c "
        "cache=@kv pending=1 layers=[0:8]\n  %a ="}, *_DROPPED),
    "rows_of_a_reduced_cache": Broken(
        "autoregressive", {"= cache target": "= cache target policy=sink_recent budget=64"},
        *_DROPPED, {"= cache target": "= cache target dtype=bfloat16"}),
    "rows_of_another_model": Broken(
        "autoregressive", {"model target": "model target\nmodel small", "cache target":
        "cache small", "forward target": "forward small"}, *_DROPPED),
    "hot_greedy": Broken(
        "autoregressive", {"model target": "model target\nassume temperature=0.7"}, *_DROPPED,
        {"model target": "model target\nassume temperature=0.0"}),
    "warm_greedy": Broken(
        "autoregressive", {"model target": "model target\nassume temperature=0.0..0.7"},
        *_DROPPED),
    "draws_kept_by_score": Broken(
        "static_tree", {"children=2 how=draw_distinct": "children=2 how=draw keep=1",
        "children=3 how=draw_distinct": "children=3 how=draw",
        "children=[2, 1] how=draw_distinct": "children=[2, 1] how=draw"}, *_DROPPED,
        {"children=2 how=draw_distinct": "children=2 how=draw_distinct keep=1"}),
    "draws_pruned": Broken(
        "static_tree", {"%l = forward target %t3": "%k = pick %t3 of=all best=4\n"
        "  %c = prune %t3 to=%k\n  %l = forward target %c", "accept %t3": "accept %c"}, *_DROPPED,
        {"%l = forward target %t3": "%k = pick %t3 of=all best=4\n  %l = forward target %t3"}),
    "draws_dropped_by_a_flag": Broken(
        "draft_chain", {"%l = forward target %c": "%n9 = measure %c value(best=1)\n"
        "  %g = compute \"n < 0.5\" n=%n9\n  %d = when %g otherwise=[%t0] {\n    yield %c\n  }\n"
        "  %l = forward target %d", "accept %c": "accept %d"}, *_DROPPED),
    "draws_relabelled_in_part": Broken(
        "draft_chain", {"%l = forward target %c": "%w = pick %c of=all worst=1\n"
        "  %d = relabel %c token=7 at=%w\n  %l = forward target %d", "accept %c": "accept %d"},
        *_DROPPED, {"%l = forward target %c": "%d = relabel %c token=7\n"
        "  %l = forward target %d", "accept %c": "accept %d"}),
    "adopted_by_a_rule_that_changes_the_law": Broken(
        "staged", {"accept %g target=%q": "accept %g target=%q rule=typical"}, "lossless",
        "adopt %g"),
    "other_keys_in_the_target's_cache": Broken(
        "self_draft_view", {"%l = forward": "forward target %t0 cache=@kv pending=1 attend=block "
        "gives=[]\n  %l = forward"}, "lossless", "attend=block",
        {"%l = forward": "forward target %t0 cache=@kv pending=1 attend=block write=scratch "
        "gives=[]\n  %l = forward"}),
    "features_of_scratch": Broken(
        "early_exit_verified", {"pending=1 layers=[0:8]": "pending=2 layers=[0:8]",
        "%last cache=@kv layers=[0:8]": "%last cache=@kv layers=[0:8] skip=[mlp.1] write=scratch"},
        "lossless", "forward target %last"),
    "rule_for_chains": Broken("static_tree", {"rule=recursive": "rule=token"}, "law", "accept %t3"),
    "rule_for_chains_of_bounded_width": Broken(
        "growing_tree", {"children=16 keep=16": "children=16 keep=1", "rule=recursive":
        "rule=token"}, "law", "accept %c"),
    "rule_for_independent_draws": Broken(
        "static_tree", {"rule=recursive": "rule=k_seq"}, "law", "accept %t3",
        {"rule=recursive": "rule=k_seq", "children=3 how=draw_distinct": "children=3 how=draw",
        "children=[2, 1] how=draw_distinct": "children=[2, 1] how=draw",
        "children=2 how=draw_distinct": "children=2 how=draw"}),
    "uniforms_too_few": Broken(
        "draft_chain", {"uniform 5 ": "uniform 4 "}, "law", "accept %c",
        {"uniform 5 ": "uniform 6 "}),
    "uniforms_for_nothing": Broken(
        "draft_chain", {"rule=token by=%v": "by=%v"}, "law", "accept %c",
        {" rule=token by=%v": ""}),
    "rule_without_rows": Broken("heads", {" target=%l": ""}, "law", "accept %t3"),
    "adopted_by_other_rows": Broken(
        "staged", {"adopt %g %i logits=%q": "adopt %g %i logits=%o", "%i = accept":
        "%o = forward draft %n cache=@dkv\n    %i = accept"}, "law", "adopt %g"),
    "drawn_without_uniforms": Broken(
        "draft_chain", {" how=draw by=%u": " how=draw"}, "draws", "grow %t",
        {" how=draw by=%u": ""}),
    "ranked_with_uniforms": Broken(
        "draft_chain", {" how=draw by=%u": " by=%u"}, "draws", "grow %t"),
    "drawn_with_too_few": Broken(
        "static_tree", {"uniform 3 stream=draft\n": "uniform 2 stream=draft\n"}, "draws",
        "%t1 = grow"),
    "learns_from_others": Broken(
        "distilled_while_serving", {"assume reproducible=false\n": ""}, "reproducible", "plan",
        {"assume reproducible=false\n": "", "rule=token by=%v": "", "  %v = uniform 5 stream=accept"
        "\n": "", " how=draw by=%u": "", "    %u = uniform 1 stream=draft\n": ""}),
}  # fmt: skip
