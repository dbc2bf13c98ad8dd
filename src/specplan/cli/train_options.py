"""Flags of `specplan train`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

FAMILIES = (
    "eagle3, dflash, medusa, eagle or mtp; to train, also fspad, peagle, hydra, amphista, "
    "blockwise, cerberus, chimera, clover, clover2, mlp_speculator, redrafter, tandem, "
    "look_ahead_tokens, bita, "
    "hidden_transfer, streams, skipping_tokens, kangaroo or exit_layer, or a draft model of the "
    "problem by its name"
)


class StageName(StrEnum):
    """What is done."""

    PAYS = "pays"
    PILOT = "pilot"
    TRAIN = "train"
    HAND_OVER = "hand-over"
    VOCABULARY = "vocabulary"


class ExitsName(StrEnum):
    """What says where tokens leave the target."""

    CLASSIFIER = "classifier"
    POLICY = "policy"


StageOption = Annotated[
    StageName,
    typer.Option(
        help="pays: which drafters would pay, before anything is trained. pilot: train some "
        "for a few per cent of the steps, and say what all would give. train: train one "
        "(eagle3, eagle, medusa, dflash, an exit, or a draft model). hand-over: publish it, "
        "checked to be served as it was trained. vocabulary: how many tokens an EAGLE-3 head is to "
        "draft from, by what they cover of the texts and by their price."
    ),
]
AnswersOption = Annotated[
    bool,
    typer.Option(
        "--answers/--as-is",
        help="Let the target answer the prompts and learn its answers, or learn the prompts "
        "themselves, as the target would go on after each token: no decoding.",
    ),
]
WorthOption = Annotated[
    float | None,
    typer.Option(
        metavar="PART",
        help="End early where the rest of the steps is expected to speed decoding up by less "
        "than this part; 0.01 is usual. Default: run all.",
    ),
]


PolicyOption = Annotated[
    float | None,
    typer.Option(
        "--on-policy",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="Of the steps of a draft model: those that learn from its own samples after the "
        "prompts, judged by the target, instead of the target's answers. Default: 0.5.",
    ),
]


ParallelOption = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="K",
        min=2,
        help="Train a draft model to draft K tokens in one pass, by mask tokens (PARD).",
    ),
]


AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="NAME",
        help="Train a draft model on what this one, trained before, misses; may be repeated.",
    ),
]


ExitsOption = Annotated[
    ExitsName | None,
    typer.Option(
        "--exits",
        help="Train no drafter, but what lets tokens leave the target early. classifier: whether "
        "an exit's token is that of all layers (CALM). policy: where to leave, by a policy "
        "gradient (ConsistentEE).",
        show_default=False,
    ),
]
DepthPriceOption = Annotated[
    float | None,
    typer.Option(
        "--depth-price",
        metavar="NATS",
        min=0.0,
        help="Of --exits policy: what all layers cost a token that the first ones know. A higher "
        "price leaves earlier. Default: 0.6.",
        show_default=False,
    ),
]


DrafterOption = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="FAMILY", help=f"{FAMILIES}; may be repeated."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder of the drafter: its config.json, and the checkpoint of its training.",
    ),
]
PromptsOption = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        help="Prompts to train on, JSON Lines; default the problem's of the split train.",
    ),
]


RowsOption = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        help="Rows of up to 512 tokens in a step; default 8, of heads of a narrow target 2.",
        show_default=False,
    ),
]


UnrollOption = Annotated[
    int | None,
    typer.Option(
        "--unroll",
        metavar="K",
        min=1,
        help="Tokens ahead that a head learns; default 7, or as many as it drafts.",
        show_default=False,
    ),
]
WarmupOption = Annotated[
    int | None,
    typer.Option(
        "--warmup",
        min=1,
        help="Steps over which the learning rate rises; default 20.",
        show_default=False,
    ),
]
