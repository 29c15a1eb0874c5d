"""A scenario's own plan, packed once and asked about other hardware and other batches, as `run` would answer."""

from __future__ import annotations

from dataclasses import replace

from hwmodel.hardware import Cluster
from hwmodel.kernels import columns as c
from hwmodel.memory import misfits
from hwmodel.optimize.packed import largest_batch, rows_at, tokens_of
from hwmodel.result import Result
from hwmodel.run import again, run
from hwmodel.scenario import Scenario
from hwmodel.timing import Array, device_array, price
from hwmodel.workload import Workload

MOST = 1 << 22
"""Sequences up to which the largest batch is looked for."""


class Fixed:
    """The plan of a scenario; clusters differ from the scenario's in numbers alone."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.base = run(scenario)
        self.laid = self.base.placed.laid
        self._known: dict[tuple[int, bytes], float] = {}

    def work(self, batch: int | None = None) -> Workload:
        """The scenario's work at a batch; its own when None."""
        own = self.scenario.workload
        return own.model_copy(update={"batch": batch}) if batch else own

    def time_of(self, priced: Array, cluster: Cluster, batch: int | None = None) -> float:
        """Seconds of a step from its priced ops, (ops, N_OUT)."""
        work = self.work(batch)
        return cluster.host_s + self.laid.step_s(work, self.laid.parts(work), priced)

    def priced(self, cluster: Cluster, batch: int | None = None) -> Array:
        """The ops of one micro-batch, (ops, N_OUT)."""
        work, table = self.work(batch), self.laid.table
        ops: Array = price(table, self.laid.point(work, self.laid.parts(work)), device_array(table, cluster))[0]
        return ops

    def step_s(self, cluster: Cluster, batch: int | None = None) -> float:
        """Seconds of a step; of the scenario's batch when none is said. Most numbers touch no op: those steps are known."""
        number = batch or self.scenario.workload.batch
        priced = self.priced(cluster, number)
        key = number, priced[:, c.TIME].tobytes()
        if key not in self._known:
            self._known[key] = self.time_of(priced, cluster, number) - cluster.host_s
        return cluster.host_s + self._known[key]

    def touched(self, cluster: Cluster) -> bool:
        """Whether any op of the plan, or the host, differs with a cluster's numbers."""
        ops = [self.priced(one).tobytes() for one in (self.scenario.cluster, cluster)]
        return ops[0] != ops[1] or self.scenario.cluster.host_s != cluster.host_s

    def tpot_s(self, cluster: Cluster, batch: int | None = None) -> float:
        """Seconds of a step per token of one sequence; of a prefill step, of the whole step."""
        per_step = 1.0 if self.scenario.workload.phase == "prefill" else tokens_of(self.scenario)
        return self.step_s(cluster, batch) / per_step

    def usd_per_mtok(self, cluster: Cluster) -> float | None:
        """Dollars per million output tokens (input, of a prefill step); None without prices."""
        spent = self.result(cluster).cost
        if spent is None:
            return None
        made = spent.usd_per_million_output_tokens
        return spent.usd_per_million_input_tokens if made is None else made

    def largest(self, cluster: Cluster) -> int:
        """Sequences that fit."""
        return largest_batch(replace(self.scenario, cluster=cluster), self.laid.graph, MOST)

    def misfits(self, cluster: Cluster) -> list[str]:
        """What does not fit of the scenario's batch."""
        own = replace(self.scenario, cluster=cluster)
        return misfits(rows_at(own, self.laid.graph, self.scenario.workload.batch), cluster)

    def rate(self, cluster: Cluster, batch: int) -> float:
        """Tokens per second and chip."""
        return batch * tokens_of(self.scenario) / self.step_s(cluster, batch) / cluster.chips

    def result(self, cluster: Cluster) -> Result:
        """The whole answer, without the ranges of inputs."""
        return again(self.base, cluster, self.scenario.economics)
