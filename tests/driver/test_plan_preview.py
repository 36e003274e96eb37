"""The preview of a plan lists its jobs on a cluster."""

import pytest

from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Request
from accelsweep.errors import InputError


def test_a_plan_for_grid_engine_lists_its_jobs(tmp_path, capsys):
    preview_plan(tmp_path, Request(("site=grid_engine_example", "accelerator=cuda", "devices=8")), keep_profile=True)
    output = capsys.readouterr().out
    assert "Grid Engine: 3 x 96 slots, 8 GPUs (h100), at most 13 minutes, queue gpu.q" in output
    assert "qsub -pe smp 96 -l h_rt=780 -l gpu=8 -l gpu_type=h100 -q gpu.q\n" in output


def test_a_plan_for_slurm_lists_its_jobs(tmp_path, capsys):
    preview_plan(tmp_path, Request(("site=slurm_example", "accelerator=cuda", "devices=8")), keep_profile=True)
    output = capsys.readouterr().out
    assert "Slurm: 3 x 1 node, 96 CPUs per node, 8 GPUs (h100)" in output
    assert "sbatch --partition=gpu --account=my_project --time=13 --mem=128000 --nodes=1 --ntasks=1" in output
    assert "--cpus-per-task=96 --gpus=h100:8 --exclusive\n" in output


def test_a_plan_for_a_cluster_refuses_a_profile_for_one_machine(tmp_path):
    with pytest.raises(InputError, match="--profile slurm"):
        preview_plan(tmp_path, Request(("site=slurm_example", "accelerator=cuda")))
