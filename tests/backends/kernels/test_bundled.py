"""GPU kernels in a bundle: just those that its rounds launch, checked, kept, refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed")

from torch._subclasses import FakeTensorMode  # noqa: E402

from specplan.backends.bundle import Bundle, load_bundle, write_bundle  # noqa: E402
from specplan.backends.bundle_executable import load_models, open_executable  # noqa: E402
from specplan.backends.kernels import cuda_forms, launcher, ops  # noqa: E402
from specplan.backends.kernels.driver import packed  # noqa: E402
from specplan.backends.kernels.fused_parts import Heads  # noqa: E402
from specplan.backends.kernels.kernel_folder import BuiltKernel, read_index, read_kernels  # noqa: E402
from specplan.backends.kernels.plan_kernels import heads_of, variants_for  # noqa: E402
from specplan.backends.kernels.variants import INDEX  # noqa: E402
from specplan.backends.machine import check_kernels, check_machine  # noqa: E402
from specplan.backends.manifest import KERNELS  # noqa: E402
from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.backends.static.fusing import heads_of as heads_of_loaded  # noqa: E402
from specplan.bundles.compiling import build_cubins  # noqa: E402
from specplan.cost_models.models.model_shape import ModelShape  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.ir.files import write_json_atomic  # noqa: E402
from specplan.runtime.acceptance import DraftedTree  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from tests.backends.compiled_plans import drawn_tree, requests_of  # noqa: E402
from tests.backends.kernels.cases import attention_case, rotation_case  # noqa: E402
from tests.backends.pairs import load_pair, plain, save_pair  # noqa: E402
from tests.cli.test_program import specplan_here  # noqa: E402
from tests.ir.plans_on_disk import plan_of  # noqa: E402

NEEDED = {
    "tree_attention_fp16_d64_m16n64s3_contiguous",
    "tree_attention_combine_fp16_d64",
    "accept_recursive_distinct_n2",
    "move_slots_128bytes_m1_contiguous",
    "rotate_and_store_fp16_d64",
    "rms_norm_fp16",
    "gated_silu_fp16",
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A pair with heads of 64 in float16 and a tree of two drawn nodes, with its kernels."""
    folder = tmp_path_factory.mktemp("bundled")
    save_pair(folder, head_dim=64)
    written = write_bundle(
        folder / "bundle",
        plan=drawn_tree(1),
        problem={},
        report={},
        models={name: (folder / name, "float16") for name in ("target", "draft")},
        backend="eager",
        versions={},
    )
    done = specplan_here("compile", str(written.folder), "--cubins", "sm_90", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == {"architectures": ["sm_90"], "kernels": sorted(NEEDED), "without_kernel": []}
    return load_bundle(written.folder)


def test_a_bundle_holds_what_its_rounds_need(bundle: Bundle) -> None:
    assert bundle.kernels == ("sm_90",)
    assert set(read_kernels(bundle.folder / KERNELS, "sm_90")) == NEEDED
    for other in ("sm_86", "sm_120"):
        with pytest.raises(MissingCapabilityError, match=f"are for sm_90, not for {other}"):
            read_kernels(bundle.folder / KERNELS, other)


def test_every_launch_of_a_round_finds_its_kernel(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = read_index(bundle.folder / KERNELS).kernels
    launched: list[BuiltKernel | None] = []

    def choose(name: str, grid: object, *arguments: Any, **constants: int) -> None:
        launched.append(launcher.fitting(kernels, name, arguments, constants))
        if launched[-1] is not None:
            types = [kind for _, kind in launched[-1].signature]
            assert len(packed(types, arguments)) == len(arguments) + 2

    monkeypatch.setattr(cuda_forms, "launch", choose)
    monkeypatch.setattr(cuda_forms, "loaded", lambda device: True)
    shape: dict[str, Any] = dict(batch=2, kv_heads=2, group=2, head_dim=64, slots=300, window=3)
    for splits in (1, 4):
        case = attention_case(1, tokens=3, dtype=torch.float16, **shape)
        cuda_forms.tree_attention(*case, splits)
    laws = torch.rand(2, 3, 61)
    tree = DraftedTree(
        torch.tensor([[3, 5], [7, 9]]),
        (-1, -1),
        probs=laws[:, :1],
        probs_index=(0, 0),
        distinct=True,
    )
    cuda_forms.accept("recursive", tree, laws, torch.rand(2, 3, dtype=torch.float64))
    cache, slot = torch.zeros(2, 2, 301, 64, dtype=torch.float16), torch.tensor([[4], [7]])
    cuda_forms.move_slots([cache, cache], slot, slot - 1, slot > 0, None)
    cuda_forms.rotate_and_store(
        *rotation_case(
            1, batch=2, tokens=3, heads=4, kv_heads=2, head_dim=64, slots=9, dtype=torch.float16
        )
    )
    hidden = torch.zeros(2, 64, dtype=torch.float16)
    cuda_forms.rms_norm(hidden, hidden[0], 1e-6)
    cuda_forms.gated_silu(hidden)
    assert {kernel.name for kernel in launched if kernel is not None} == NEEDED
    assert None not in launched
    # another number type, a larger tree, another rule: nothing there serves them
    launched.clear()
    cuda_forms.tree_attention(*attention_case(1, tokens=3, dtype=torch.bfloat16, **shape), 4)
    larger = DraftedTree(torch.zeros(2, 3, dtype=torch.int64), (-1, 0, 1), probs=laws)
    cuda_forms.accept(
        "recursive", larger, torch.rand(2, 4, 61), torch.rand(2, 4, dtype=torch.float64)
    )
    cuda_forms.accept("greedy", tree, laws, None)
    cuda_forms.move_slots([cache[..., :32].contiguous()], slot, slot - 1, slot > 0, None)
    assert launched == [None] * 5


def test_a_trace_wants_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle's rounds are exported for its kernels, where triton need not be."""
    monkeypatch.setattr(launcher, "_compiled", lambda name: pytest.fail(f"{name}: compiled"))
    attended = attention_case(
        1, batch=2, kv_heads=2, group=2, tokens=3, head_dim=64, slots=9, window=3
    )
    turned = rotation_case(1, batch=2, tokens=3, heads=4, kv_heads=2, head_dim=64, slots=9)
    tokens, live = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)
    hidden = torch.zeros(5, 64), torch.zeros(64), 1e-6
    judged = ("greedy", tokens, tokens, live, torch.zeros(2, 4, 61), None, None, None, 3, 3, False)
    with FakeTensorMode():

        def there(case: Sequence[Any]) -> list[Any]:
            """Of a GPU, though there may be none."""
            tensors = (isinstance(item, torch.Tensor) for item in case)
            return [
                torch.empty(item.shape, dtype=item.dtype, device="cuda:0") if tensor else item
                for item, tensor in zip(case, tensors, strict=True)
            ]

        assert ops.tree_attention(*there(attended), 4).shape == (2, 4, 3, 64)
        assert ops.rotate_and_store(*there(turned)).shape == (2, 4, 3, 64)
        assert ops.rms_norm(*there(hidden)).shape == (5, 64)
        assert ops.gated_silu(*there(hidden[:1])).shape == (5, 32)
        path, accepted, bonus = ops.accept_tensors(*there(judged))
        assert (path.shape, accepted.shape, bonus.shape) == ((2, 3), (2,), (2,))


class FakeDriver:
    """One that launches nothing, and tells what it would."""

    def __init__(self) -> None:
        self.loads = 0
        self.launched: list[bytes] = []

    def load(self, cubin: bytes, name: str, shared_bytes: int) -> Any:
        self.loads += 1
        return SimpleNamespace(launch=lambda *_: self.launched.append(cubin))


def test_kernels_of_several_bundles_stay_loaded(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch finds those of its own types, whoever loaded others since."""
    driver = FakeDriver()
    there = launcher.LoadedKernels(driver)  # type: ignore[arg-type]
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(launcher, "_loaded", {None: there})
    kernels = read_kernels(bundle.folder / KERNELS, "sm_90")
    first, other = kernels["rms_norm_fp16"], kernels["gated_silu_fp16"]
    for _ in range(2):
        there.add([first])
        there.add([other])
    assert driver.loads == 2
    hidden = torch.zeros(2, 64, dtype=torch.float16)
    cuda_forms.rms_norm(hidden, hidden[0], 1e-6)
    cuda_forms.gated_silu(hidden)
    assert driver.launched == [first.cubin, other.cubin]
    assert launcher.loaded(hidden.device) and not launcher.loaded(torch.device("cuda", 1))


def test_addresses_are_kept_as_long_as_their_caches() -> None:
    caches = [torch.zeros(1, 2, 9, 4, dtype=torch.int32) for _ in range(2)]
    before = len(cuda_forms._tables)
    addresses = cuda_forms._addresses(caches)
    assert addresses.tolist() == [cache.data_ptr() for cache in caches]
    assert cuda_forms._addresses([cache.view(torch.int32) for cache in caches]) is addresses
    assert cuda_forms._addresses(caches[:1]).tolist() == [caches[0].data_ptr()]
    assert len(cuda_forms._tables) == before + 1
    caches.clear()
    assert len(cuda_forms._tables) == before


@pytest.mark.gpu
def test_a_bundle_decodes_by_its_own_kernels(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the bundle's kernels are for sm_90")
    models, requests = load_models(bundle, "cuda"), requests_of(temperature=0.8)
    monkeypatch.setattr(launcher, "_loaded", {})
    compiled_here = StaticExecutable(bundle.plan, models, fused_on={"cuda"})
    expected = [item.tokens for item in generate(compiled_here, requests).completions]
    executable = open_executable(bundle, models)
    monkeypatch.setattr(launcher, "_compiled", lambda name: pytest.fail(f"{name}: not loaded"))
    assert [item.tokens for item in generate(executable, requests).completions] == expected


def test_damaged_kernels_are_refused(bundle: Bundle) -> None:
    path = bundle.folder / KERNELS / "sm_90" / "move_slots_128bytes_m1_contiguous.cubin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UsageError, match="bytes have changed"):
        load_bundle(bundle.folder)
    path.write_bytes(whole)
    stranger = path.with_name("other.cubin")
    stranger.write_bytes(whole)
    with pytest.raises(UsageError, match="does not list this file"):
        load_bundle(bundle.folder)
    stranger.unlink()


def _dropped(kernel: dict[str, Any]) -> None:
    kernel["name"], kernel["file"] = "other", "sm_90/other.cubin"


def _retyped(kernel: dict[str, Any]) -> None:
    kernel["signature"].reverse()


def _resized(kernel: dict[str, Any]) -> None:
    kernel["num_warps"] *= 2


@pytest.mark.parametrize("change", [_dropped, _retyped, _resized])
def test_kernels_of_another_version_are_refused(
    bundle: Bundle, change: Callable[[dict[str, Any]], None]
) -> None:
    check_kernels(bundle, "sm_90")
    with pytest.raises(MissingCapabilityError, match="are for sm_90, not for sm_120"):
        check_kernels(bundle, "sm_120")
    folder = bundle.folder.with_name("older")
    index = json.loads((bundle.folder / KERNELS / INDEX).read_text("utf-8"))
    change(next(each for each in index["kernels"] if each["name"] == "rms_norm_fp16"))
    write_json_atomic(folder / KERNELS / INDEX, index)
    with pytest.raises(MissingCapabilityError, match=r"lack rms_norm_fp16.*--cubins sm_90"):
        check_kernels(replace(bundle, folder=folder), "sm_90")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_stated(bundle: Bundle) -> None:
    with pytest.raises(MissingCapabilityError, match="there is no CUDA device"):
        check_machine(bundle, "cuda")


def test_what_has_no_kernel_is_stated(bundle: Bundle, tmp_path: Path) -> None:
    for plan, dtype, message in (
        (plan_of("self_draft_view"), "float16", "cannot run `state @part`"),
        (plain(), "float64", r"launch none of our kernels \(heads of target: 64 in float64\)"),
    ):
        odd = write_bundle(
            tmp_path / "bundle",
            plan=plan,
            problem={},
            report={},
            models={"target": (bundle.model_folder("target"), dtype)},
            backend="eager",
            versions={},
        )
        with pytest.raises(MissingCapabilityError, match=message):
            build_cubins(odd, ["sm_90"])
    with pytest.raises(UsageError, match="no kernels for the architecture 'sm_75'"):
        build_cubins(bundle, ["sm_75"])


def names(plan: Any, *heads: Heads) -> Sequence[str]:
    """Of kernels for all architectures: those with little shared memory, and those with more."""
    models = dict(zip(("target", "draft"), heads, strict=False))
    return sorted(variant.name for variant in variants_for(plan, models))


def test_kernels_are_those_of_heads_types_and_trees(bundle: Bundle) -> None:
    models = load_pair(bundle.folder.parent, dtype="float16")
    for name, model in models.items():
        shape = ModelShape.from_folder(bundle.model_folder(name), dtype="float16")
        assert heads_of(shape) == heads_of_loaded(model) == Heads(4, 2, 64, "float16", False)
    large, small = Heads(32, 8, 128, "bfloat16", False), Heads(8, 8, 80, "bfloat16", False)
    assert names(plain(), large) == [
        "gated_silu_bf16",
        "rms_norm_bf16",
        "rotate_and_store_bf16_d128",
        "tree_attention_bf16_d128_m16n64s2_contiguous",
        "tree_attention_bf16_d128_m16n64s3_contiguous",
        "tree_attention_combine_bf16_d128",
    ]
    # 1 + 14 nodes times 4 heads fill a tile of 64; heads of 80 have no kernel, nor any move of them
    needed = names(drawn_tree(3), large, small)
    assert needed == [
        "accept_recursive_distinct_n16",
        "gated_silu_bf16",
        "move_slots_256bytes_m4_contiguous",
        "rms_norm_bf16",
        "rotate_and_store_bf16_d128",
        "tree_attention_bf16_d128_m64n128s3_contiguous",
        "tree_attention_bf16_d128_m64n64s2_contiguous",
        "tree_attention_combine_bf16_d128",
    ]
    assert names(plain(), Heads(8, 8, 64, "float64", False)) == []
    # no attention of ours, but what stands between the products of its layers
    for odd in (Heads(8, 8, 64, "float32", True), Heads(8, 8, 80, "float32", False)):
        assert names(plain(), odd) == ["gated_silu_fp32", "rms_norm_fp32"]
