"""The definition of the plan language, as a backend: slow, short, and it refuses no verified plan.

All that it remembers of a model are facts, "this hidden state entered layer l at this path"; keys
and values are made of them anew in every pass. What a pass sees are the prefixes of a node's path,
and what a commit keeps are the prefixes of the text. So there are no slots, no positions, no
masks of trees and no rollback, and no op depends on the order in which others stand.

What each op means stands in its own file, `specplan.ir.ops`; here are the world that ops run in
(`world.py`), passes of models (`passes.py`), what is remembered (`memory.py`) and what a model
must offer (`stacks.py`).
"""
