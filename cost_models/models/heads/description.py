"""What a drafter that reads a target's hidden states is made of, whatever family it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from specplan.ir.blocks import Skips

Norms = Literal["none", "each", "joined"]
Join = Literal[
    "feature",
    "concat",
    "wide",
    "sum",
    "recurrent",
    "stack",
    "block",
    "attend",
    "sample",
    "slots",
    "stages",
    "ngram",
    "tandem",
    "neighbours",
]


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Hidden states of the target that enter.

    Attributes:
        layers: after how many of its layers they are taken; empty for after the last one.
        width: of one of them, the target's hidden size.
        finished: the target's final norm is applied to them.
        norm: RMSNorms of the head on them: none, one on `each`, one on all of them `joined`.
        project: a matrix makes them as wide as the head; so they enter its first step only.
        bias: of that matrix, or of the one that joins them with the embedding.
        normed_after: an RMSNorm on what that matrix gives (DFlash).
    """

    layers: tuple[int, ...] = ()
    width: int
    finished: bool = False
    norm: Norms = "none"
    project: bool = False
    bias: bool = False
    normed_after: bool = False

    @property
    def count(self) -> int:
        """States that are read at once."""
        return max(len(self.layers), 1)


@dataclass(frozen=True, kw_only=True)
class Body:
    """Transformer layers of a head.

    Attributes:
        layers: how many.
        config: of such layers, as a config.json that `transformers` reads.
        input_norm: a norm before the first attention; EAGLE-1 has none, deeper layers have one.
        mlp: an MLP behind each attention; Kangaroo has none.
        normed_residual: the residual of the first layer starts at the normed state
            (`norm_before_residual`), for `wide` heads.
        side_by_side: each layer is of a level of its own and reads what enters, not the one
            before it.
        on_text: they run along the text alone; drafted tokens go on from what they gave there, by
            steps without them (Clover).
        two_states: the MLP adds to the state twice: one goes on to the logits, the other to the
            next step (FSPAD).
    """

    layers: int = 0
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    input_norm: bool = True
    mlp: bool = True
    normed_residual: bool = False
    side_by_side: bool = False
    on_text: bool = False
    two_states: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenBlocks:
    """Blocks by which a state attends to one token's embedding, f + V e cos(Q norm(f), K e).

    The cosine is taken by attention head: a softmax over one key would be 1 (Clover).

    Attributes:
        heads: attention heads of a block.
        first: the token of the text enters before the layers, by a block of its own; else behind
            them, by the block of drafted tokens.
    """

    heads: int
    first: bool


@dataclass(frozen=True, kw_only=True)
class Levels:
    """How a head looks several tokens ahead in one pass.

    Attributes:
        count: tokens ahead.
        by: `heads` on the state of a node, or `slots` below it, which run through its layers.
        mask_token: whose embedding enters at slots; None where each level has an embedding of its
            own.
        mixed: attention heads of a layer in which the levels' states attend to each other, behind
            a residual block each (Amphista); 0 for none.
        first_stage: levels that read the first of two stages; the others read the second.
        own_state: slots enter with a trained state in place of hidden states (`mask_hidden`).
        enters: the target's layer before which they enter, as maps of their node's state there; 0
            where they are embeddings.
        rank: of one map for all of them, to whose result each adds a vector of its own (Speculative
            Streaming); 0 where each has a whole map.
        adapted: the target's layers that have adapters or a soft prompt at slots, the last ones.
        adapter_rank: of the adapters; 0 for none.
        prompt: tokens of the soft prompt (BiTA).
        skipped: the target's layers that a pass with slots leaves out (S3D). Such a pass drafts
            from the root on, and the whole target verifies in another.
    """

    count: int = 1
    by: Literal["heads", "slots"] = "heads"
    mask_token: int | None = None
    own_state: bool = False
    enters: int = 0
    rank: int = 0
    adapted: int = 0
    adapter_rank: int = 0
    prompt: int = 0
    mixed: int = 0
    first_stage: int = 0
    skipped: tuple[int, ...] = ()

    @property
    def reach(self) -> int:
        """Tokens ahead that are drafted: where layers are skipped, the root's own too."""
        return self.count + bool(self.skipped)

    @property
    def skips(self) -> Skips:
        """Both blocks of the skipped layers."""
        return Skips.of(self.skipped, self.skipped)


@dataclass(frozen=True, kw_only=True)
class Output:
    """From a state of a head to logits.

    Attributes:
        norm: an RMSNorm before the matrix.
        finished: the target's final norm stands before the matrix.
        onward: what the next step reads: the state `before_norm` or `after_norm`.
        residual: residual blocks x + SiLU(W x + b) before the matrix.
        residual_bias: their biases.
        inner: width between the two matrices of a block, x + W' ReLU(W x + b) + b', of which each
            level has one; 0 for blocks of one matrix, which belong to a head.
        neighbours: a block reads its state beside that of the level before (Cerberus).
        head: whose matrix: the target's, its own, or its own for `each` level or step.
        bias: of that matrix.
        linear: a matrix before the norm, and at drafted tokens another one, which reads the token's
            embedding beside the state (Clover-2).
        vocabulary: tokens it knows; fewer than the target's where `d2t` or a map says which.
    """

    norm: bool = False
    finished: bool = False
    onward: Literal["before_norm", "after_norm"] = "before_norm"
    residual: int = 0
    residual_bias: bool = True
    inner: int = 0
    neighbours: bool = False
    head: Literal["target", "own", "each"] = "target"
    bias: bool = False
    linear: bool = False
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """How the states of a corpus nearest to a state tell what follows; d are squared distances.

    Attributes:
        states: of the corpus.
        nearest: how many of them count, K.
        temperature: t of their weights, exp(-d / t) over its sum.
        offset: a of the weight of the target's own probabilities, sigmoid((r - a) / s), r the ratio
            of the least d to the largest among the K.
        scale: s of it.
    """

    states: int
    nearest: int
    temperature: float
    offset: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class HeadDescription:
    """A drafter that reads a target's hidden states.

    Attributes:
        family: what its format calls it, for messages.
        hidden_size: width of its states.
        token_ids: entries of the vocabulary whose ids it takes, the target's.
        reads: hidden states of the target.
        join: how a token's embedding e and the state f above it become what enters.
            `feature`: f alone. `concat`: a matrix on [norm(e); norm(f)]. `wide`: [e; f], of which
            the first attention reads the norms of both, and the residual is f. `sum`: GELU of a
            norm of a weighted sum of W f and e. `recurrent`: [f; SiLU(W e + U s + b)]. `stack`: f
            and the embeddings since, side by side. `block`: f where there is one, else e. `sample`:
            g + W (SiLU(G e) * U norm(g)), g as `concat` has it without norms. `attend`: f attends
            to e by `by_token`; behind the layers an RMSNorm follows. `slots`: the target itself
            runs trained embeddings at slots, and f is what they leave. `stages`: f enters the first
            layer, and a matrix on [what it gives; e] the second; both are kept side by side.
            `ngram`: what the embeddings of the last tokens make asks the layer, whose keys and
            values are f's; what it gives is kept beside the target's last state. `tandem`: e asks,
            and the keys and values of each layer are those of a matrix on a state of its own; what
            entered the layers at drafted tokens is kept, and is asked by those after them.
            `neighbours`: f is looked for among states of a corpus, beside the token that followed
            them.
        embedding: the table: the target's, its own, its own of `each` step; `either` is its own
            where the checkpoint has one, else the target's.
        tokens_read: last tokens of a path whose embeddings enter.
        begins: the first token of a text that has a row in its cache: above earlier ones there is
            no state. 0 where states enter at their own tokens.
        first_embedding: the embedding of that token counts; engines feed DeepSeek's modules zeros.
        inner_norm: epsilon of the norms outside of its layers.
        steps: steps with weights of their own; the last one serves further steps.
        tied: weights of the steps that are one (`embedding`, `norm`, `head`, `project`).
        scaled_input: what enters the first step is normed without weights (`scale_input`).
        body: its transformer layers.
        by_token: how tokens enter a state one by one, for `attend`.
        neighbours: of `neighbours`.
        levels: tokens ahead in one pass.
        output: from states to logits.
        names: (pattern, replacement) pairs from names of tensors in its files to those of
            `specplan.runtime.models.heads`; the first that matches whole counts, and an empty
            replacement leaves the tensor out. On the way back (`specplan.training.new_heads`) the
            first replacement that gives a weight counts, and of `(?:a|b)` in its pattern a.
    """

    family: str
    hidden_size: int
    token_ids: int
    reads: Reads
    join: Join
    embedding: Literal["target", "own", "either", "each"] = "target"
    tokens_read: int = 1
    begins: int = 1
    first_embedding: bool = True
    inner_norm: float = 1e-6
    steps: int = 1
    tied: frozenset[str] = frozenset()
    scaled_input: bool = False
    body: Body = Body()
    by_token: TokenBlocks | None = None
    neighbours: Neighbours | None = None
    levels: Levels = Levels()
    output: Output
    names: tuple[tuple[str, str], ...] = ()
