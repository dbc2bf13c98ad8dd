"""The kernels that are built ahead of time: names, types, constants and launches; no torch.

A variant fixes the types of a kernel's arguments and its constants. Strides, sizes and numbers of
heads stay free, so that a few variants serve every model with the same head size and number type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specplan.backends.kernels import tiles
from specplan.ir.errors import UsageError

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
DTYPES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Number types of queries and caches, and their bytes."""


@dataclass(frozen=True)
class Variant:
    """One kernel as it is built.

    Attributes:
        name: of the variant.
        module: of this package, where the kernel is.
        kernel: its function.
        signature: types of the arguments that are passed, in their order, in Triton's words.
        constants: values of the arguments that are not passed.
        aligned: arguments that must be multiples of 16 (pointers: bytes; numbers: elements).
        num_warps: per program.
        num_stages: blocks in flight.
    """

    name: str
    module: str
    kernel: str
    signature: dict[str, str]
    constants: dict[str, int]
    aligned: tuple[str, ...]
    num_warps: int
    num_stages: int


def variants(
    dtypes: Sequence[str] = ("bf16",), head_dims: Sequence[int] = tiles.HEAD_DIMS, page: int = 0
) -> list[Variant]:
    """All kernels for some models.

    Args:
        dtypes: number types of queries and caches, of `DTYPES`.
        head_dims: of `tiles.HEAD_DIMS`.
        page: slots of a page; 0 for caches in which a row's slots lie together.

    Raises:
        UsageError: there is no kernel for one of these.
    """
    _check("number type", dtypes, tuple(DTYPES))
    _check("head size", head_dims, tiles.HEAD_DIMS)
    found: list[Variant] = []
    for dtype in dtypes:
        for head_dim in head_dims:
            found += _attention(dtype, head_dim, page)
    row_bytes = {head_dim * DTYPES[dtype] for dtype in dtypes for head_dim in head_dims}
    found += [_moves(size, page) for size in sorted(row_bytes)]
    return [*found, *_acceptance()]


def _check(what: str, given: Sequence[object], known: tuple[object, ...]) -> None:
    for value in given:
        if value not in known:
            raise UsageError(
                f"there are no kernels for the {what} {value!r}",
                remedy=f"Choose from {', '.join(map(str, known))}.",
            )


def _attention(dtype: str, head_dim: int, page: int) -> Iterator[Variant]:
    strides = [
        f"{what}_{axis}"
        for what, axes in (
            ("query", ("row", "head", "token")),
            ("key", ("page", "head", "slot")),
            ("value", ("page", "head", "slot")),
        )
        for axis in axes
    ]
    out = ["out_row", "out_head", "out_token"]
    signature = {
        **dict.fromkeys(("query", "keys", "values"), f"*{dtype}"),
        "pages": "*i32", "prefix": "*i64", "seen": "*u8", "out": "*fp32", "sums": "*fp32",
        "scale": "fp32",
        **dict.fromkeys(("tokens", "window", "slots", "kv_heads", "group"), "i32"),
        **dict.fromkeys((*strides, "pages_row", "seen_row", *out), "i32"),
    }  # fmt: skip
    aligned = ("query", "keys", "values", "out", "sums", *strides)
    kind = f"paged{page}" if page else "contiguous"
    for tile in _tiles(dtype, head_dim):
        yield Variant(
            f"tree_attention_{dtype}_d{head_dim}_m{tile.block_m}_{kind}",
            "attention_kernels",
            "tree_attention_split",
            signature,
            {
                "HEAD_DIM": head_dim, "PAGE": page, "WHOLE": False,
                "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n,
            },
            aligned,
            tile.num_warps,
            tile.num_stages,
        )  # fmt: skip
    yield Variant(
        f"tree_attention_combine_{dtype}_d{head_dim}",
        "attention_kernels",
        "tree_attention_combine",
        {
            "parts": "*fp32", "sums": "*fp32", "out": f"*{dtype}",
            **dict.fromkeys(("tokens", "kv_heads", "group", "splits", *out), "i32"),
        },
        {"HEAD_DIM": head_dim, "BLOCK_SPLITS": tiles.MOST_SPLITS},
        ("parts", "out", *out),
        4,
        1,
    )  # fmt: skip


def _tiles(dtype: str, head_dim: int) -> list[tiles.AttentionTile]:
    sizes = (16, 64)
    return sorted({tiles.attention_tile(lines, head_dim, DTYPES[dtype]) for lines in sizes})


def _moves(row_bytes: int, page: int) -> Variant:
    strides = ("page_words", "head_words", "slot_words")
    return Variant(
        f"move_slots_{row_bytes}bytes_{f'paged{page}' if page else 'contiguous'}",
        "cache_kernels",
        "move_slots_kernel",
        {
            "addresses": "*i64", "pages": "*i32", "source": "*i64", "destination": "*i64",
            "live": "*u8", **dict.fromkeys(("moves", "heads", *strides, "pages_row"), "i32"),
        },
        {"WORDS": row_bytes // 4, "PAGE": page, "BLOCK_MOVES": 16},
        strides,
        4,
        1,
    )  # fmt: skip


def _acceptance() -> Iterator[Variant]:
    sizes = {"BLOCK_NODES": 128, "BLOCK_V": tiles.BLOCK_VOCABULARY}
    tree = {"tokens": "*i64", "parents": "*i64", "live": "*u8"}
    told = {"path": "*i64", "accepted": "*i64", "bonus": "*i64"}
    drafts = {"laws": "*fp32", "law_index": "*i64", "uniforms": "*fp64"}
    warps = tiles.ACCEPTING_WARPS
    yield Variant(
        "accept_greedy", "acceptance_kernels", "accept_greedy_kernel",
        {
            "target": "*fp32", **tree, **told,
            **dict.fromkeys(("nodes", "levels", "vocabulary", "parents_row"), "i32"),
        },
        sizes, ("target",), warps, 1,
    )  # fmt: skip
    yield Variant(
        "accept_token", "acceptance_kernels", "accept_token_kernel",
        {
            "target": "*fp32", "tokens": "*i64", "live": "*u8", **drafts, **told,
            **dict.fromkeys(("nodes", "vocabulary", "law_rows", "index_row"), "i32"),
        },
        {"HAS_LAWS": True, **sizes}, ("target", "laws"), warps, 1,
    )  # fmt: skip
    numbers = ("nodes", "levels", "vocabulary", "parents_row", "law_rows", "index_row")
    yield Variant(
        "accept_recursive", "recursion_kernels", "accept_recursive_kernel",
        {
            "target": "*fp32", **tree, **drafts, "residual": "*fp32", **told,
            **dict.fromkeys(numbers, "i32"),
        },
        {"HAS_LAWS": True, "DISTINCT": True, **sizes},
        ("target", "laws", "residual"), warps, 1,
    )  # fmt: skip
