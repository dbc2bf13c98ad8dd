"""The kernels that are built ahead of time: names, types, constants and launches; no torch.

A variant fixes the types of a kernel's arguments and its constants. Strides, sizes and numbers of
heads stay free, so that a few variants serve every model with the same head size and number type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from specplan.backends.kernels import tiles
from specplan.ir.errors import UsageError

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
DTYPES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Number types of queries and caches, and their bytes."""
INDEX = "kernels.json"
"""The file that tells what a folder of built kernels holds."""
NUMBER_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""From torch's words for them to Triton's."""
MODULES = {
    "accept_greedy_kernel": "acceptance_kernels", "accept_recursive_kernel": "recursion_kernels",
    "accept_token_kernel": "acceptance_kernels", "gated_silu_kernel": "layer_kernels",
    "move_slots_kernel": "cache_kernels", "rms_norm_kernel": "layer_kernels",
    "rotate_and_store_kernel": "rotary_kernels", "tree_attention_combine": "attention_kernels",
    "tree_attention_split": "attention_kernels",
}  # fmt: skip
"""The module of each kernel."""
_NODES, _MOVES, _LINES = 128, 16, (16, 128, 256)
RULES = ("greedy", "token", "recursive")
"""Acceptance rules that have a kernel."""


@dataclass(frozen=True)
class Variant:
    """One kernel as it is built.

    Attributes:
        name: of the variant.
        kernel: its function.
        signature: types of the arguments that are passed, in their order, in Triton's words.
        constants: values of the arguments that are not passed.
        aligned: arguments that must be multiples of 16 (pointers: bytes; numbers: elements).
        num_warps: per program.
        num_stages: blocks in flight.
        architectures: for which it is built.
    """

    name: str
    kernel: str
    signature: dict[str, str]
    constants: dict[str, int]
    aligned: tuple[str, ...]
    num_warps: int = 4
    num_stages: int = 1
    architectures: tuple[str, ...] = ARCHITECTURES

    @property
    def module(self) -> str:
        """The module of this package where the kernel is."""
        return MODULES[self.kernel]


def variants(
    dtypes: Sequence[str] = ("bf16",), head_dims: Sequence[int] = tiles.HEAD_DIMS, page: int = 0
) -> list[Variant]:
    """Kernels for plans of some models: trees of up to 128 nodes, 16 levels.

    Where sampling, of nodes drawn from laws, in trees without replacement; `acceptance` has others.

    Args:
        dtypes: number types of queries and caches, of `DTYPES`.
        head_dims: of `tiles.HEAD_DIMS`.
        page: slots of a page; 0 for caches in which a row's slots lie together.

    Raises:
        UsageError: there is no kernel for one of these.
    """
    _check("number type", dtypes, tuple(DTYPES))
    _check("head size", head_dims, tiles.HEAD_DIMS)
    chosen: list[Variant] = []
    for dtype in dtypes:
        for head_dim in head_dims:
            chosen += attention(dtype, head_dim, _LINES, page)
            if not page:
                chosen.append(rotation(dtype, head_dim))
        chosen += layers(dtype)
    row_bytes = {head_dim * DTYPES[dtype] for dtype in dtypes for head_dim in head_dims}
    chosen += [moves(size, _MOVES, page) for size in sorted(row_bytes)]
    return [*chosen, *(acceptance(rule, _NODES) for rule in RULES)]


def _check(what: str, given: Sequence[object], known: tuple[object, ...]) -> None:
    for value in given:
        if value not in known:
            raise UsageError(
                f"there are no kernels for the {what} {value!r}",
                remedy=f"Choose from {', '.join(map(str, known))}.",
            )


def attention(dtype: str, head_dim: int, lines: Iterable[int], page: int = 0) -> Iterator[Variant]:
    """Attention to trees, one kernel for each tile, and the one that combines splits.

    Args:
        dtype: of `DTYPES`.
        head_dim: of `tiles.HEAD_DIMS`.
        lines: queries times query heads of a key/value head, of every pass.
        page: see `variants`.
    """
    strides = "query_row query_head query_token key_page key_head key_slot "
    strides += "value_page value_head value_slot"
    signature = _signature(
        "query keys values pages prefix seen out sums scale tokens window slots kv_heads group "
        f"{strides} pages_row seen_row {_OUT}",
        **dict.fromkeys(("query", "keys", "values"), f"*{dtype}"), pages=_pages(page),
    )  # fmt: skip
    aligned = ("query", "keys", "values", "out", "sums", *strides.split())
    kind = f"paged{page}" if page else "contiguous"
    serving: dict[tiles.AttentionTile, list[str]] = {}
    for arch in ARCHITECTURES:
        for tile in {tiles.attention_tile(n, head_dim, DTYPES[dtype], arch) for n in lines}:
            serving.setdefault(tile, []).append(arch)
    for tile, architectures in sorted(serving.items()):
        size = f"m{tile.block_m}n{tile.block_n}s{tile.num_stages}"
        yield Variant(
            f"tree_attention_{dtype}_d{head_dim}_{size}_{kind}", "tree_attention_split", signature,
            {
                "HEAD_DIM": head_dim, "PAGE": page, "WHOLE": False,
                "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n,
            },
            aligned, tile.num_warps, tile.num_stages, tuple(architectures),
        )  # fmt: skip
    yield Variant(
        f"tree_attention_combine_{dtype}_d{head_dim}", "tree_attention_combine",
        _signature(f"parts sums out tokens kv_heads group splits {_OUT}", out=f"*{dtype}"),
        {"HEAD_DIM": head_dim, "BLOCK_SPLITS": tiles.MOST_SPLITS}, ("parts", "out", *_OUT.split()),
    )  # fmt: skip


def rotation(dtype: str, head_dim: int) -> Variant:
    """Queries and keys turned by their positions, keys and values stored; no pages.

    Args:
        dtype: of `DTYPES`.
        head_dim: of `tiles.HEAD_DIMS`.
    """
    tensors = ("joined", "cos", "sin", "query", "keys", "values")
    strides = "key_row key_head key_slot value_row value_head value_slot"
    return Variant(
        f"rotate_and_store_{dtype}_d{head_dim}", "rotate_and_store_kernel",
        _signature(
            f"joined cos sin slots query keys values tokens heads kv_heads {strides}",
            **dict.fromkeys(tensors, f"*{dtype}"), slots="*i64",
        ),
        {"HALF": head_dim // 2}, (*tensors, *strides.split()), num_warps=1,
    )  # fmt: skip


def layers(dtype: str) -> Iterator[Variant]:
    """Norm and gated activation, of any width that is a multiple of 16.

    Args:
        dtype: of `DTYPES`.
    """
    for name, names, block, warps in (
        ("rms_norm", "hidden weight out epsilon width", tiles.BLOCK_NORM, tiles.NORM_WARPS),
        ("gated_silu", "joined out width", tiles.BLOCK_GATED, tiles.GATED_WARPS),
    ):
        tensors = dict.fromkeys(("hidden", "weight", "out", "joined"), f"*{dtype}")
        yield Variant(
            f"{name}_{dtype}", f"{name}_kernel", _signature(names, **tensors),
            {"BLOCK_WIDTH": block}, tuple(n for n in names.split() if n != "epsilon"), warps,
        )  # fmt: skip


def _pages(page: int) -> str:
    """The type of `pages`; where there are none, launches pass int64 that is not read."""
    return "*i32" if page else "*i64"


def moves(row_bytes: int, most: int, page: int = 0) -> Variant:
    """Moves within a cache.

    Args:
        row_bytes: of one slot of one head; a power of two.
        most: slots that are moved at once, per row.
        page: see `variants`.
    """
    strides = "page_words head_words slot_words"
    block = tiles.power_of_two(most)
    return Variant(
        f"move_slots_{row_bytes}bytes_m{block}_{f'paged{page}' if page else 'contiguous'}",
        "move_slots_kernel",
        _signature(
            f"addresses pages source destination live moves heads {strides} pages_row",
            pages=_pages(page),
        ),
        {"WORDS": row_bytes // 4, "PAGE": page, "BLOCK_MOVES": block}, tuple(strides.split()),
    )  # fmt: skip


def acceptance(rule: str, nodes: int, drawn: bool = True, distinct: bool = True) -> Variant:
    """An acceptance rule.

    Args:
        rule: of `RULES`.
        nodes: of a tree, at most.
        drawn: some nodes were drawn from laws.
        distinct: siblings were drawn without replacement.
    """
    block = tiles.power_of_two(nodes)
    sizes = {"BLOCK_NODES": block, "BLOCK_V": tiles.BLOCK_VOCABULARY}
    numbers = {"HAS_LAWS": drawn}
    kind = f"{'drawn' if drawn else 'points'}_n{block}"
    if rule == "greedy":
        names = "target tokens parents live path accepted bonus nodes levels vocabulary parents_row"
        kind, numbers = f"n{block}", {}
    elif rule == "token":
        names = (
            "target tokens live laws law_index uniforms path accepted bonus "
            "nodes vocabulary law_rows index_row"
        )
    else:
        names = (
            "target tokens parents live laws law_index uniforms residual path accepted bonus "
            "nodes levels vocabulary parents_row law_rows index_row"
        )
        kind = f"distinct_n{block}" if drawn and distinct else kind
        numbers |= {"DISTINCT": drawn and distinct}
    return Variant(
        f"accept_{rule}_{kind}", f"accept_{rule}_kernel", _signature(names, tokens="*i64"),
        {**numbers, **sizes}, (), tiles.ACCEPTING_WARPS,
    )  # fmt: skip


def _signature(names: str, **types: str) -> dict[str, str]:
    """Types of arguments, given by name: those stated here, usual ones, else int32 numbers."""
    return {name: types.get(name) or _TYPES.get(name, "i32") for name in names.split()}


_OUT = "out_row out_head out_token"
_TYPES = {
    **dict.fromkeys(("out", "sums", "parts", "target", "laws", "residual"), "*fp32"),
    **dict.fromkeys(("prefix", "addresses", "source", "destination", "parents"), "*i64"),
    **dict.fromkeys(("path", "accepted", "bonus", "law_index"), "*i64"),
    "seen": "*i1", "live": "*i1", "uniforms": "*fp64", "scale": "fp32", "epsilon": "fp32",
}  # fmt: skip
"""Types of arguments that have the same one in all kernels."""
