"""Chooses one configuration for each kernel from the target's numbers, without running anything.

Templates (matrix products, convolutions, attention) are chosen before Inductor generates their source, so that their
epilogues are fused; with a single choice Inductor benchmarks nothing. Pointwise and reduction kernels carry a few
configurations, of which Inductor's first is its own heuristic's answer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.library_calls import OPERATIONS
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import UnsupportedError


@dataclass(frozen=True)
class Tile:
    """A matrix-product configuration: tile sizes in elements, pipeline stages, warps in a workgroup."""

    m: int
    n: int
    k: int
    stages: int
    warps: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Tile:
        """From a template's keyword arguments."""
        return cls(
            options["BLOCK_M"], options["BLOCK_N"], options["BLOCK_K"], options["num_stages"], options["num_warps"]
        )

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory that the pipelined operand tiles take, in bytes."""
        return (self.m + self.n) * self.k * itemsize * max(self.stages - 1, 1)


# Cycles, from the latencies published for Ampere to Hopper; only their ratios matter for the ranking.
_MEMORY_LATENCY = 700.0
_STEP_OVERHEAD = 60.0
_TENSOR_FLOPS = 2048.0  # fused multiply-adds a cycle and multiprocessor, 16-bit operands
_SIMT_FLOPS = 128.0  # the same without tensor cores
_BYTES_PER_CYCLE = 32.0  # of device memory and L2, for one multiprocessor when all are busy
_WARPS_FOR_FULL_RATE = 8
_MAX_WARPS = 32  # of a workgroup: 1024 threads
_ELEMENT_BYTES = 4.0  # of a pointwise kernel's operand, on average
_LOADS_IN_FLIGHT = 8.0  # that one thread can have waiting


def matmul_cycles(tile: Tile, m: int, n: int, k: int, batch: int, itemsize: int, tensor_cores: bool, sms: int) -> float:
    """Estimated cycles of a tiled matrix product: waves of workgroups, each a pipelined loop over `k`.

    A step costs the larger of arithmetic and operand traffic, at least the share of memory latency that the pipeline
    does not hide. Workgroups that fit together on a multiprocessor share its arithmetic and bandwidth.
    """
    groups = math.ceil(m / tile.m) * math.ceil(n / tile.n) * batch
    steps = math.ceil(k / tile.k)
    resident = min(math.ceil(groups / sms), max(1, 16 // tile.warps))
    rate = (_TENSOR_FLOPS * 2 / itemsize) if tensor_cores else _SIMT_FLOPS
    rate *= min(1.0, tile.warps * resident / _WARPS_FOR_FULL_RATE)
    arithmetic = tile.m * tile.n * tile.k * resident / rate
    traffic = (tile.m + tile.n) * tile.k * itemsize * resident / _BYTES_PER_CYCLE
    latency = _MEMORY_LATENCY / max(tile.stages - 1, 1)
    step = max(arithmetic, traffic, latency) + _STEP_OVERHEAD
    epilogue = tile.m * tile.n * 4 * resident / _BYTES_PER_CYCLE
    waves = math.ceil(groups / (sms * resident))
    return waves * (_MEMORY_LATENCY + steps * step + epilogue)


class UnfitConfigs:
    """Configurations of generated kernels that turned out to need more than the target has."""

    def __init__(self) -> None:
        self._found: set[tuple[str, str, str]] = set()

    def add(self, tuner: Any, config: Any) -> bool:
        """Adds one; returns whether the kernel has another that is not among them."""
        self._found.add(self._key(tuner, config))
        return any(not self.holds(tuner, other) for other in tuner.configs)

    def holds(self, tuner: Any, config: Any) -> bool:
        """Whether it is one of them."""
        return self._key(tuner, config) in self._found

    @staticmethod
    def _key(tuner: Any, config: Any) -> tuple[str, str, str]:
        # A kernel is generated anew in each attempt, with the same source.
        return tuner.fn.src, str(tuner.triton_meta["signature"]), str(config)


class StaticChoices(compat.InductorChoices):
    """Inductor's choice handler with a cost model in place of its benchmarks.

    Args:
        target: whose multiprocessors and shared memory count.
        shared_memory_budget: bytes of shared memory that a template may be expected to take; lowered by the caller when
            a kernel turned out to need more than the target has.
        unfit: configurations that are not chosen; None for none such.
        library_products: leave products of matrices to a library instead of taking a template for them.
        candidates: configurations to have of each kernel; with more than one, there are also those that Inductor would
            try only when it tunes.
    """

    def __init__(
        self,
        target: Target,
        shared_memory_budget: int,
        unfit: UnfitConfigs | None = None,
        *,
        library_products: bool = False,
        candidates: int = 1,
    ) -> None:
        super().__init__()
        self._target = target
        self._budget = shared_memory_budget
        self._unfit = unfit or UnfitConfigs()
        self.library_products = library_products
        self.candidates = candidates

    def configs_of(self, tuner: Any, wider: Any = None) -> list[Any]:
        """The configurations to compile a generated kernel with, as `ordered_configs` prefers them.

        Args:
            tuner: the kernel.
            wider: the same kernel with more configurations. Those come last, so that they change no first choice.

        Raises:
            UnsupportedError: the kernel has none.
        """
        configs = ordered_configs(tuner, self._target)
        fitting = [config for config in configs if not self._unfit.holds(tuner, config)] or configs[:1]
        if wider is None:
            return fitting
        further = ordered_configs(wider, self._target)
        if tuner.size_hints:  # else it is a user's, or a template's, whose configurations say what else may work
            further += _other_warps(fitting[0])
        known = {str(config): config for config in (*configs, *further)}
        return fitting + [c for c in list(known.values())[len(configs) :] if not self._unfit.holds(tuner, c)]

    def uuid(self) -> str:
        """Identifies the policy in Inductor's caches."""
        return f"coilpack-{self._target.name}-{self._budget}-{self.library_products}-{self.candidates}"

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: Any = None,
    ) -> list[Any]:
        choices = super()._finalize_template_configs(
            template_choices, kernel_inputs, templates, op_name, kwarg_overrides
        )
        tiled = [c for c in choices if "BLOCK_M" in c.params.to_kwargs()]
        if self.library_products:
            # Templates and library are asked for in separate calls; one choice in all leaves nothing to benchmark.
            others = [c for c in choices if c not in tiled]
            if op_name in OPERATIONS:
                return others[:1]
            choices = tiled
        if not tiled:
            return choices
        return self._ranked(tiled, kernel_inputs, op_name)[: self.candidates]

    def _ranked(self, choices: Sequence[Any], kernel_inputs: Any, op_name: str) -> list[Any]:
        m, n, k = (max(1, int(size)) for size in kernel_inputs.mnk_hinted())
        dtype = kernel_inputs.dtype(0)
        batch = _batch(kernel_inputs)
        tensor_cores = dtype != torch.float64 and (dtype != torch.float32 or _tf32_allowed())
        fitting = [c for c in choices if Tile.of(c.params.to_kwargs()).shared_bytes(dtype.itemsize) <= self._budget]
        if not fitting:
            raise UnsupportedError(
                f"{op_name} of {m}x{k} by {k}x{n} ({dtype}): none of {len(choices)} template configurations fits "
                f"{self._budget} bytes of shared memory on {self._target.name}"
            )

        def cost(choice: Any) -> tuple[float, int]:
            tile = Tile.of(choice.params.to_kwargs())
            sms = self._target.multiprocessor_count
            cycles = matmul_cycles(tile, m, n, k, batch, dtype.itemsize, tensor_cores, sms)
            return cycles, tile.shared_bytes(dtype.itemsize)

        return sorted(fitting, key=cost)

    @staticmethod
    def can_fuse_vertical(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
        """Keeps constants out of templates: Inductor would broadcast a scalar of the wrong rank into their tiles."""
        if node2.is_template() and not node1.is_template() and not node1.read_writes.reads:
            return False
        return bool(compat.InductorChoices.can_fuse_vertical(scheduler, node1, node2, shared_data_score))

    def get_flex_attention_fwd_configs(
        self, head_dim: int, dtype: torch.dtype, device_type: str | None = "cuda"
    ) -> list[Any]:
        """The largest configuration whose tiles fit the budget; the smallest there is if none does.

        Candidates come behind it: smaller ones, and those that Inductor would try if it tuned.
        """
        configs = super().get_flex_attention_fwd_configs(head_dim, dtype, device_type)
        default = configs[-1]  # Inductor puts its heuristic's answer last, behind autotuning candidates
        smaller = _halvings(default)
        fitting = [c for c in smaller if flex_shared_bytes(c, head_dim, dtype.itemsize) <= self._budget]
        if self.candidates == 1 or not fitting:
            return fitting[:1] or smaller[-1:]
        with compat.inductor_config.patch(max_autotune=True):
            tuned = super().get_flex_attention_fwd_configs(head_dim, dtype, device_type)
        others = [c for c in tuned if flex_shared_bytes(c, head_dim, dtype.itemsize) <= self._budget]
        distinct = {str(config): config for config in (fitting[0], *others, *fitting)}
        return list(distinct.values())[: self.candidates]

    def get_conv_configs(self, device_type: str | None = "cuda") -> Any:
        """Inductor's convolution configurations, cut to those that the cost model prefers."""
        generate = super().get_conv_configs(device_type)

        def best(m: Any, n: Any, k: Any, *args: Any, **kwargs: Any) -> Iterable[Any]:
            configs = list(generate(m, n, k, *args, **kwargs))
            itemsize = kwargs.get("dtype_size") or 4
            sms = self._target.multiprocessor_count
            sizes = compat.size_hint(m), compat.size_hint(n), compat.size_hint(k)

            def cost(config: Any) -> float:
                tile = Tile.of({**config.kwargs, "num_stages": config.num_stages, "num_warps": config.num_warps})
                if tile.shared_bytes(itemsize) > self._budget:
                    return math.inf
                return matmul_cycles(tile, *sizes, 1, itemsize, itemsize < 4, sms)

            ranked = sorted(configs, key=cost)
            return ranked[:1] + [c for c in ranked[1 : self.candidates] if cost(c) < math.inf]

        return best


def _tf32_allowed() -> bool:
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _batch(kernel_inputs: Any) -> int:
    """Product of the leading dimensions of the first operand of a batched product; 1 for a plain one."""
    shape = kernel_inputs.shapes_hinted()[0]
    return math.prod(int(size) for size in shape[:-2]) if len(shape) > 2 else 1


def flex_shared_bytes(config: Any, head_dim: int, itemsize: int) -> int:
    """Query tile, key and value tiles for each pipeline stage, and the tile of scores, in bytes.

    Agrees within 300 bytes with what Triton 3.7 allocated for sm_80 at head dimensions 80 and 128 in float32.
    """
    padded = 1 << (head_dim - 1).bit_length()  # blocks are powers of two
    rows = config.block_m + 2 * config.block_n * max(config.num_stages - 1, 1)
    return int((rows * padded + config.block_m * config.block_n) * itemsize)


def _halvings(config: Any) -> list[Any]:
    """`config`, then ever smaller ones: fewer stages first, then smaller tiles, down to 16 rows."""
    import dataclasses

    found = [config]
    while True:
        last = found[-1]
        if last.num_stages > 1:
            found.append(dataclasses.replace(last, num_stages=last.num_stages - 1))
        elif max(last.block_m, last.block_n) > 16:
            halved = {name: max(getattr(last, name) // 2, 16) for name in ("block_m", "block_n")}
            found.append(dataclasses.replace(last, **halved))
        else:
            return found


def _other_warps(config: Any) -> list[Any]:
    """The same blocks with half and with twice the warps."""
    found = []
    for num_warps in (config.num_warps // 2, config.num_warps * 2):
        if 1 <= num_warps <= _MAX_WARPS:
            other = copy.copy(config)
            other.num_warps = num_warps
            found.append(other)
    return found


def ordered_configs(tuner: Any, target: Target) -> list[Any]:
    """All configurations of a kernel, by estimated time; equals as Inductor has them.

    Raises:
        UnsupportedError: the kernel has none.
    """
    configs = list(tuner.configs)
    if not configs:
        raise UnsupportedError(f"kernel {tuner.fn.__name__} has no configuration to compile")
    sizes = {axis: int(size) for axis, size in (tuner.size_hints or {}).items()}
    if not sizes:
        return configs
    return sorted(configs, key=lambda config: loop_cycles(sizes, config.kwargs, config.num_warps, target))


def loop_cycles(sizes: Mapping[str, int], blocks: Mapping[str, int], warps: int, target: Target) -> float:
    """Estimated cycles of a pointwise or reduction kernel: waves of workgroups, each looping over its reduction.

    Args:
        sizes: elements along each axis (`x`, `y`, `z`; reductions `r0_`, `r1_`).
        blocks: the configuration's block sizes (`XBLOCK`, `R0_BLOCK`); a reduction without one is taken whole.
        warps: in a workgroup.
        target: whose multiprocessors count.
    """
    groups, tile, steps = 1, 1, 1
    for axis, size in sizes.items():
        block = min(blocks.get(f"{axis.upper()}BLOCK", size), size)
        tile *= block
        if axis.startswith("r"):
            steps *= math.ceil(size / block)
        else:
            groups *= math.ceil(size / block)
    threads = 32 * warps
    resident = max(1, target.max_threads_per_multiprocessor // threads)
    busy = min(resident, math.ceil(groups / target.multiprocessor_count))
    waves = math.ceil(groups / (target.multiprocessor_count * resident))
    per_thread = max(tile / threads, 1.0)
    traffic = max(tile, threads) * _ELEMENT_BYTES * busy / _BYTES_PER_CYCLE
    step = max(traffic, _MEMORY_LATENCY / min(per_thread, _LOADS_IN_FLIGHT)) + per_thread
    return waves * (_MEMORY_LATENCY + steps * step)
