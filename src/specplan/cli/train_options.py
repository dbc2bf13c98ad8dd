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
        help="pays: predict, without training, which drafters would pay. pilot: train some for 4 % "
        "of the steps and predict what all steps would give. train: train one drafter (eagle3, "
        "eagle, medusa, dflash, an exit, or a draft model). hand-over: check that it decodes as in "
        "training, and publish it. vocabulary: choose the vocabulary size of an EAGLE-3 head, by "
        "its coverage of the texts and its price."
    ),
]
AnswersOption = Annotated[
    bool,
    typer.Option(
        "--answers/--as-is",
        help="Train on the target's answers to the prompts, or on the prompts themselves: the "
        "target's next-token distribution after each of their tokens, without decoding.",
    ),
]
WorthOption = Annotated[
    float | None,
    typer.Option(
        metavar="PART",
        help="End early if the remaining steps are expected to speed decoding up by less than this "
        "fraction; 0.01 is usual. Default: run all steps.",
    ),
]


PolicyOption = Annotated[
    float | None,
    typer.Option(
        "--on-policy",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="For a draft model: the share of steps that learn from its own samples, with the "
        "target's distribution, instead of from the target's answers. Default: 0.5.",
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
        help="Train a draft model on the tokens that this trained draft model misses; may be "
        "repeated.",
    ),
]


ExitsOption = Annotated[
    ExitsName | None,
    typer.Option(
        "--exits",
        help="Train exits, at which tokens leave the target early, instead of a drafter. "
        "classifier: predicts whether an exit's token is that of all layers (CALM). policy: learns "
        "where to leave, by a policy gradient (ConsistentEE).",
        show_default=False,
    ),
]
DepthPriceOption = Annotated[
    float | None,
    typer.Option(
        "--depth-price",
        metavar="NATS",
        min=0.0,
        help="With --exits policy: the price of running all layers for a token that the first "
        "layers predict. A higher price leaves earlier. Default: 0.6.",
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
        help="Prompts to train on, JSON Lines. Default: the problem's prompts with split train.",
    ),
]


RowsOption = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        help="Rows of up to 512 tokens per step. Default: 8; 2 for heads of a narrow target.",
        show_default=False,
    ),
]


UnrollOption = Annotated[
    int | None,
    typer.Option(
        "--unroll",
        metavar="K",
        min=1,
        help="Tokens ahead that a head learns. Default: 7, or the number that it drafts.",
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
