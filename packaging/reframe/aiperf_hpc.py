"""aiperf-hpc as a test of ReFrame: the verdict is its sanity, the figures of a run are its performance.

    reframe -C packaging/reframe/settings.py -c packaging/reframe/aiperf_hpc.py -r --performance-report

Variables set what is run, and where: -S preset=synthetic -S minutes=20 -S num_nodes=4 -S num_devices=8
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_before, sanity_function, variable

# One rank per device, plus one on the first node: the master, which has no device. As in slurm/*.sbatch.
HOSTS = """scontrol show hostnames | head -n "$nodes" |
    awk -v devices="$devices" '{ for (i = (NR > 1); i <= devices; i++) print }' >"$hosts"
"""
# Whole cores per rank, counted in threads, on the node with the fewest.
CORES = r"""least=$(tr , '\n' <<<"$SLURM_JOB_CPUS_PER_NODE" | sort -n | head -n 1 | cut -d'(' -f1)
threads=$(scontrol show node "$SLURMD_NODENAME" | grep -oP "ThreadsPerCore=\K\d+")
cores=$((least / threads / (devices + 1) * threads))
"""


@rfm.simple_test
class AiperfHpc(rfm.RunOnlyRegressionTest):
    """One run, by `aiperf-hpc` of the environment that the site's settings load."""

    descr = "AutoML benchmark: sustained OPS of neural architecture search"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    maintainers = ["aiperf-hpc"]

    preset = variable(str, value="digits")
    minutes = variable(float, value=2.0)
    options = variable(typ.List[str], value=[])
    """More options of `aiperf-hpc run`."""
    num_nodes = variable(int, value=1)
    num_devices = variable(int, value=1)
    """Devices per node to request from a scheduler; without one a run uses all devices of the machine."""

    executable = "aiperf-hpc"
    keep_files = ["run/journal.jsonl", "run/config.toml", "run/result.json"]

    @run_before("setup")
    def command(self):
        self.executable_opts = ["run", "--preset", self.preset, "--minutes", f"{self.minutes:g}"]
        self.executable_opts += ["--directory", "run", *self.options]
        self.postrun_cmds = ["aiperf-hpc report --json run"]
        self.time_limit = (
            f"{int(self.minutes * 60) + 1800}s"  # in addition to the span: data, measurements, the test
        )

    @run_before("run")
    def ranks(self):
        if self.current_partition.scheduler.registered_name not in ("slurm", "squeue"):
            return
        self.num_tasks = self.job.num_tasks = None  # nodes and devices are requested instead
        asked = (f"--nodes={self.num_nodes}", f"--gpus-per-node={self.num_devices}", "--exclusive", "--mem=0")
        self.job.options += asked
        # Ranks must start together: with Slurm's other fence, a tree, some continue too early.
        self.env_vars["SLURM_PMIX_FENCE"] = "ring"
        self.prerun_cmds = [
            f"nodes={self.num_nodes} devices={self.num_devices} hosts=$PWD/hosts",
            *(HOSTS + CORES).splitlines(),
            "export SLURM_HOSTFILE=$hosts",
        ]
        self.job.launcher.options = [
            "--mpi=pmix",
            f"--nodes={self.num_nodes}",
            f"--ntasks={self.num_nodes * self.num_devices + 1}",
            "--distribution=arbitrary",
            '--cpus-per-task="$cores"',
        ]

    @property
    def result(self):
        """The output of `aiperf-hpc report --json`: docs/results.md."""
        return json.loads((Path(self.stagedir) / "run/result.json").read_text(encoding="utf-8"))

    @sanity_function
    def is_valid(self):
        written = sn.path_isfile(str(Path(self.stagedir) / "run/result.json"))
        return sn.all([sn.assert_true(written, "the run left no result"), self.verdict()])

    @sn.deferrable
    def verdict(self):
        verdict = self.result["verdict"]
        reason = f"{verdict.get('answer', '')}: {verdict.get('cause', '')}"
        return sn.evaluate(sn.assert_true(verdict["valid"], reason))

    @run_before("performance")
    def figures(self):
        """Figures of the run; one that is not known is left out, because unknown is not zero."""
        result = self.result
        score, energy = result["score"], result["energy"]
        control = score["control"] or {}
        mfu = None if score["mfu"] is None else 100 * score["mfu"]
        known = {
            "sustained_ops": (score["ops_per_second"], "OPS"),
            "regulated_score": (score["regulated_score"], "OPS"),
            "tensor_ops": (score["tensor_ops_per_second"], "OPS"),
            "mfu": (mfu, "%"),
            "control": (control.get("examples_per_second"), "examples/s"),
            "energy": (energy["joules"], "J"),
            "ops_per_watt": (energy["ops_per_joule"], "OPS/W"),
        }
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit)
            for name, (value, unit) in known.items()
            if value is not None
        }
