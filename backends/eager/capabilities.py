"""What the eager backend runs, as data; no torch.

It runs every op and attribute of the language but these:

| plan of `tests/ir/plans` | what is refused | why |
| --- | --- | --- |
| `probes` | `reroot take=placed`, `pick of=placed` | probes become levels of a forward |
| `prompt_chunks` | row groups | they become one bound on the tokens of a pass |
| `searched_blocks` | `skip=@source`, `trial=true` | the search of blocks leaves the language |
"""

from __future__ import annotations

from specplan.ir.capabilities import Capabilities
from specplan.ir.ops import OPS
from specplan.ir.sources import SOURCE_ENTRIES

CAPABILITIES = Capabilities(
    backend="eager",
    ops=frozenset(OPS),
    states=frozenset({"cache", "track", "source", "value"}),
    sources=frozenset(entry.name for entry in SOURCE_ENTRIES if entry.name != "skip_sets"),
    policies=frozenset({"sink_recent", "retrieved"}),
    limits={
        ("reroot", "take"): ("match",),
        ("pick", "of"): ("newest", "leaves", "all", "from"),
        ("forward", "trial"): (False,),
    },
    any_layer=True,
    stops=True,
)
