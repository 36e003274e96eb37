"""Import published rates to `src/accelsweep/features/projection/data/{models,rates}.csv` from clones of their sources.

    python benchmarks/published_rates.py --timm CLONE --lambda CLONE [--counted FILE]

`--timm` is a clone of huggingface/pytorch-image-models (Apache-2.0), `--lambda` one of lambdal/deeplearning-benchmark,
of which only facts are taken: names, batches and rates. Every model is built on the meta device and counted, which
takes some 15 minutes and needs `timm`, `torchvision` and `transformers`. `--counted` keeps the counts as JSON lines
from one call to the next.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.features.projection.fit import COUNTED_COLUMNS, MODELS_TABLE, RATES_TABLE

TIMM = (
    ("inference-amp", "rtx3090", "infer-amp-nchw-pt240-cu124-rtx3090"),
    ("inference-amp", "rtx4090", "infer-amp-nchw-pt291-cu128-4090"),
    ("inference-amp", "rtx5090", "infer-amp-nchw-pt291-cu130-5090"),
    ("inference-amp", "rtx-pro-6000-maxq", "infer-amp-nchw-pt291-cu130-pro6000maxq"),
    ("training-amp", "rtx3090", "train-amp-nchw-pt112-cu113-rtx3090"),
)
"""Form, device and table `results/benchmark-NAME.csv`: without torch.compile, and without channels_last."""

LAMBDA = {
    "Quadro RTX 8000": "rtx-8000",
    "LambdaCloud V100 16GB": "v100-16",
    "RTX 3090": "rtx3090",
    "LambdaCloud A10": "a10",
    "LambdaCloud A100 40GB PCIe": "a100-40-pcie",
    "A100 80GB PCIe": "a100-80-pcie",
    "A100 80GB SXM4": "a100-80",
    "RTX 6000 Ada": "rtx-6000-ada",
    "RTX A6000": "rtx-a6000",
    "RTX 4090": "rtx4090",
    "H100 80GB PCIe Gen5": "h100-pcie",
    "SMC H100 80GB SXM5": "h100-sxm",
}
"""Lambda's names of single GPUs. Where several machines have one GPU, one of them stands for all."""

LAMBDA_MODELS = {
    "resnet50": "resnet50@224+eager",
    "bert_base_squad": "bert_base@384",
    "bert_large_squad": "bert_large@384",
}
"""Lambda's columns whose network can be built again; BERT's samples are sequences of 384 tokens."""


EAGER = "+eager"
"""Ends the name of a model whose attention is not fused: the training rates are older than torch's fused attention."""


class Row(NamedTuple):
    """One published rate, in samples per second; `model` is NAME@SIDE, see `EAGER`."""

    form: str
    device: str
    model: str
    batch: float
    rate: float


def main() -> None:
    """Count the models and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm", type=Path, required=True)
    parser.add_argument("--lambda", type=Path, required=True, dest="lambdal")
    parser.add_argument("--counted", type=Path, default=Path("counted.jsonl"))
    given = parser.parse_args()
    rows = [*timm_rates(given.timm), *lambda_rates(given.lambdal)]
    counts = counted(sorted({row.model for row in rows}), given.counted)
    kept = [told_once(row, counts) for row in rows if "error" not in counts[row.model]]
    write_models({row.model: counts[row.model] for row in kept})
    write_rates(kept, commit(given.timm), commit(given.lambdal))
    print(f"{len(kept)} rates of {len({row.model for row in kept})} models; {len(rows) - len(kept)} not counted")


def told_once(row: Row, counts: dict[str, dict[str, Any]]) -> Row:
    """Return the row under its model's plain name where no attention of the model can be fused."""
    plain = row.model.removesuffix(EAGER)
    same = plain in counts and {**counts[plain], "model": row.model} == counts[row.model]
    return row._replace(model=plain) if same else row


def table(clone: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file as it is committed."""
    text = subprocess.run(["git", "-C", clone, "show", f"HEAD:{name}"], capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(text.stdout)))


def commit(clone: Path) -> str:
    """Return the commit that is read, with its day."""
    asked = ["git", "-C", str(clone), "log", "-1", "--format=%H of %as"]
    return str(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def timm_rates(clone: Path) -> Iterator[Row]:
    """Return timm's rates."""
    for form, device, name in TIMM:
        task = name.partition("-")[0]
        for row in table(clone, f"results/benchmark-{name}.csv"):
            model = f"{row['model']}@{int(float(row[f'{task}_img_size']))}" + (EAGER if task == "train" else "")
            yield Row(
                form, device, model, float(row[f"{task}_batch_size"]), round(float(row[f"{task}_samples_per_sec"]), 1)
            )


def lambda_rates(clone: Path) -> Iterator[Row]:
    """Return Lambda's rates of single GPUs."""
    for form, name in (("training-amp", "fp16"), ("training-fp32", "fp32")):
        rates = table(clone, f"pytorch/pytorch-train-throughput-{name}.csv")
        batches = table(clone, f"pytorch/pytorch-train-bs-{name}.csv")
        for rate, batch in zip(rates, batches, strict=True):
            if rate["name_gpu"] in LAMBDA and float(rate["num_gpu"]) == 1:
                for column, model in LAMBDA_MODELS.items():
                    yield Row(form, LAMBDA[rate["name_gpu"]], model, float(batch[column]), float(rate[column]))


def counted(models: list[str], kept: Path) -> dict[str, dict[str, Any]]:
    """Return the traits of each model, or its `error`; those in `kept` are not counted again."""
    found: dict[str, dict[str, Any]] = {}
    if kept.exists():
        found = {one["model"]: one for one in map(json.loads, kept.read_text("utf-8").splitlines())}
    with kept.open("a", encoding="utf-8") as file:
        for model in models:
            if model not in found:
                found[model] = {"model": model, **count(model)}
                file.write(json.dumps(found[model]) + "\n")
    return found


def count(model: str) -> dict[str, Any]:
    """Return the traits of one model, or its `error`."""
    from accelsweep.measure.flops import forward_traits

    try:
        network, example = bert(model) if model.startswith("bert") else image_model(model)
        return asdict(forward_traits(lambda: network(example), network, 1))
    except Exception as error:  # noqa: BLE001  a model that this version of timm lacks is left out
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def image_model(model: str) -> tuple[Any, Any]:
    """Return timm's network and one picture, on the meta device."""
    import timm  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import torch

    timm.layers.set_fused_attn(enable=not model.endswith(EAGER))
    name, _, side = model.removesuffix(EAGER).partition("@")
    with torch.device("meta"):
        try:
            network = timm.create_model(name, img_size=int(side))
        except TypeError:
            network = timm.create_model(name)
    return network.to("meta").eval(), torch.empty(1, 3, int(side), int(side), device="meta")


def bert(model: str) -> tuple[Any, Any]:
    """Return BERT for questions, whose attention is not fused, and one sequence, on the meta device."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    own: dict[str, Any] = {"attn_implementation": "eager", **(large if "large" in model else {})}
    with torch.device("meta"):
        network = BertForQuestionAnswering(BertConfig(**own))
    return network.train(mode=False), torch.zeros(1, int(model.partition("@")[2]), dtype=torch.long, device="meta")


def write_models(counts: dict[str, dict[str, Any]]) -> None:
    """Write the traits with four digits."""
    with MODELS_TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", *COUNTED_COLUMNS, "recurrent"])
        for model in sorted(counts):
            own = counts[model]
            writer.writerow([model, *(_short(own[name]) for name in COUNTED_COLUMNS), int(own["recurrent"])])


def _short(value: float) -> str:
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def write_rates(rows: list[Row], timm: str, lambdal: str) -> None:
    """Write the rates below their sources and the columns' letters: a line per model, an entry per form and device."""
    letters = {name: chr(ord("A") + at) for at, name in enumerate(sorted({f"{row.form} {row.device}" for row in rows}))}
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.model, []).append(f"{letters[f'{row.form} {row.device}']} {row.batch:g} {row.rate:.4g}")
    with RATES_TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write(
            f"# timm, results/benchmark-*.csv, commit {timm}, Apache-2.0: RTX 3090, 4090, 5090, PRO 6000 Max-Q\n"
        )
        file.write(f"# Lambda, deeplearning-benchmark, pytorch/*.csv, commit {lambdal}, facts only: training\n")
        file.writelines(f"{letter}={name}\n" for name, letter in letters.items())
        file.writelines(f"{model},{';'.join(found[model])}\n" for model in sorted(found))


if __name__ == "__main__":
    main()
