"""All tables of one system and stack, each read when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from specplan.cost_models.devices.silicon import attention, collectives, experts, products
from specplan.cost_models.devices.silicon.attention import Attention
from specplan.cost_models.devices.silicon.collectives import Reduction
from specplan.cost_models.devices.silicon.experts import Experts
from specplan.cost_models.devices.silicon.package import (
    DataSheet,
    Table,
    find_table,
    list_systems,
    read_sheet,
    read_table,
)
from specplan.cost_models.devices.silicon.products import Products
from specplan.ir.errors import UsageError

TableT = TypeVar("TableT")


@dataclass(frozen=True)
class KernelTables:
    """Measured times of a system under a stack.

    Attributes:
        folder: `systems` of the package.
        system: as the package calls the hardware, e.g. `h100_sxm`.
        stack: as it calls the software, e.g. `vllm`.
        sheet: the system's data sheet.
    """

    folder: Path
    system: str
    stack: str
    sheet: DataSheet
    _built: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, folder: Path, system: str, stack: str) -> KernelTables:
        """The tables of a system and stack.

        Raises:
            UsageError: the package has none.
        """
        known = list_systems(folder)
        if f"{system}/{stack}" not in known:
            raise UsageError(
                f"no kernel tables of {system}/{stack}",
                where="device silicon:...",
                remedy=f"There are silicon:{', silicon:'.join(known)}.",
            )
        return cls(folder, system, stack, read_sheet(folder, system))

    def products(self, form: str) -> Products | None:
        """Matrix products in a format of the tables; None where they have none."""
        return self._once(
            ("gemm", form),
            lambda: self._of("gemm", "gemm_perf", products.COLUMNS, Products.of, form),
        )

    def experts(self, form: str) -> Experts | None:
        """Expert blocks in a format of the tables; None where they have none."""
        return self._once(
            ("moe", form), lambda: self._of("moe", "moe_perf", experts.COLUMNS, Experts.of, form)
        )

    def attention(self) -> Attention | None:
        """Attention over plain caches; None where the tables have none."""
        return self._once(("attention", ""), self._attention)

    def reduction(self) -> Reduction | None:
        """The stack's own all-reduce, else NCCL's; None where the tables have neither."""
        return self._once(("comm", ""), self._reduction)

    def _once(self, key: tuple[str, str], build: Callable[[], TableT]) -> TableT:
        if key not in self._built:
            self._built[key] = build()
        table: TableT = self._built[key]
        return table

    def _read(
        self,
        family: str,
        name: str,
        columns: tuple[str, ...],
        optional: tuple[str, ...] = (),
        stack: str | None = None,
    ) -> Table | None:
        file = find_table(self.folder, self.system, family, stack or self.stack, name)
        return None if file is None else read_table(file, columns, optional)

    def _of(
        self,
        family: str,
        name: str,
        columns: tuple[str, ...],
        build: Callable[[DataSheet, Table, str], TableT | None],
        form: str,
    ) -> TableT | None:
        table = self._read(family, name, columns)
        return None if table is None else build(self.sheet, table, form)

    def _attention(self) -> Attention | None:
        wanted = attention.COLUMNS, attention.OPTIONAL_COLUMNS
        decode = self._read("attention", "generation_attention_perf", *wanted)
        prompt = self._read("attention", "context_attention_perf", *wanted)
        if decode is None or prompt is None:
            return None
        return Attention.of(self.sheet, {"decode": decode, "prompt": prompt})

    def _reduction(self) -> Reduction | None:
        for stack, name in ((self.stack, "custom_allreduce_perf"), ("nccl", "nccl_perf")):
            table = self._read("comm", name, collectives.COLUMNS, stack=stack)
            reduction = None if table is None else Reduction.of(self.sheet, table)
            if reduction is not None:
                return reduction
        return None
