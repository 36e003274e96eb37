"""The workloads of the acceptance as overlays of the config, at full size for a GPU, small for two cores."""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]

IMAGES = {"data": {"image_size": 224, "channels": 3, "classes": 1000, "placement": "resident"}}
NO_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""Turns TF32 off in cuBLAS and cuDNN alike; torch by itself turns it off in matrix products only."""
ALL_TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
"""Turns TF32 on in matrix products; in convolutions it is on by torch's default."""


def chosen(model: str, data: str, /, **overlay: Any) -> Case:
    """Return an overlay that takes a model and a data set of the shipped ones."""
    return {"defaults": [{"override /model": model}, {"override /data": data}], **overlay}


def truth(small: bool) -> dict[str, Case]:
    """Return the networks whose rates are known elsewhere."""
    cases = {
        "resnet50_bf16": _resnet(precision="bf16-mixed"),
        "resnet50_fp16": _resnet(precision="16-mixed"),
        "resnet50_fp32": _resnet(precision="32-true", env=NO_TF32),
        "resnet50_32_true": _resnet(precision="32-true"),
        "resnet50_tf32": _resnet(precision="32-true", env=ALL_TF32),
        "vgg16_bf16": chosen("vgg16", "random_images", batch_size=256, precision="bf16-mixed", **IMAGES),
        "gpt2_bf16": gpt2(16),
        "lstm64": chosen("lstm", "random_tokens", batch_size=128, data={"sequence": 64}),
    }
    if not small:
        return cases
    kept = ("resnet50_bf16", "resnet50_32_true", "gpt2_bf16")
    return {name: _shrunk(cases[name]) for name in kept}


def _resnet(**overlay: Any) -> Case:
    settings = {"batch_size": 256, "channels_last": True, **IMAGES, **overlay}
    return chosen("resnet50", "random_images", **settings)


def compiled() -> Case:
    """Return the network that torch.compile is judged by."""
    return _resnet(precision="bf16-mixed", compile="default")


def gpt2(batch_size: int) -> Case:
    """Return GPT-2's smallest shape on sequences of 1024 tokens that lie on the device."""
    data = {"vocabulary": 50257, "sequence": 1024, "placement": "resident", "samples": 2 * batch_size}
    return chosen("gpt2", "random_tokens", batch_size=batch_size, precision="bf16-mixed", data=data)


def largest_batch(small: bool) -> Case:
    """Return the network whose largest batch is searched, from the batch that it names."""
    case = truth(small)["resnet50_bf16"]
    return (
        {**case, "batch_size": 16, "data": {**case["data"], "samples": 1024}} if small else {**case, "batch_size": 1024}
    )


def too_large(small: bool) -> Case:
    """Return a case for which no device has enough memory."""
    if not small:
        return gpt2(1024)
    case = _shrunk(_resnet(precision="32-true"))
    return {**case, "batch_size": 2048, "data": {**case["data"], "samples": 2048}}


def _shrunk(case: Case) -> Case:
    """Return a case that takes a second on two cores: the same code, without a meaningful number."""
    model, data = dict(case.get("model", {})), dict(case["data"])
    if "image_size" in data:
        model |= {"width": 8, "blocks": [1, 1, 1, 1], "classes": 10}
        data |= {"image_size": 32, "classes": 10, "samples": 64}
    else:
        model |= {"vocabulary": 100, "context": 16, "width": 16, "layers": 1, "heads": 1}
        data |= {"vocabulary": 100, "sequence": 16, "samples": 64}
    return {**case, "batch_size": 8, "model": model, "data": data}


def kernels(small: bool) -> dict[str, Case]:
    """Return single operations: the device's best in each number format, and its memory."""
    size, elements = (128, 10_000) if small else (8192, 500_000_000)
    cases = {
        "matmul_float32": _matmul(size, precision="32-true", env=NO_TF32),
        "matmul_tf32": _matmul(size, precision="32-true", env=ALL_TF32),
        "matmul_bfloat16": _matmul(size, precision="bf16-true"),
        "matmul_float16": _matmul(size, precision="16-true"),
        "copy": chosen("kernel_copy", "digits", task="kernels", model={"size": elements}, batch_size=4),
    }
    if small:
        return {name: cases[name] for name in ("matmul_float32", "copy")}
    return cases


def _matmul(size: int, **overlay: Any) -> Case:
    return chosen("kernel_matmul", "digits", task="kernels", model={"size": size}, batch_size=4, **overlay)


def known(seconds: float, mark: str | None = None) -> Case:
    """Return a kernel that takes `seconds`; `mark` is the file in which it leaves its process id."""
    model = {"_target_": "known.Known", "seconds": seconds, "mark": mark}
    return chosen("own", "digits", task="kernels", model=model, batch_size=1)


def harness(small: bool) -> Case:
    """Return the case that the hand-written loop is compared with: one batch on the device, no quality phase."""
    case = _resnet(precision="bf16-mixed") | {"measure": {"fake_loader": True}}
    return _shrunk(case) if small else case


def spec_by_hand(small: bool, device: str) -> dict[str, Any]:
    """Return the same as `harness`, as a spec of the hand-written loop."""
    case = harness(small)
    return {
        "device": device,
        "batch_size": case["batch_size"],
        "image_size": case["data"]["image_size"],
        "classes": case["data"]["classes"],
        "blocks": case["model"].get("blocks", [3, 4, 6, 3]),
        "width": case["model"].get("width", 64),
        "precision": case["precision"],
        "warmup_steps": 5 if small else 20,
        "seconds": 0.3 if small else 4.0,
    }
