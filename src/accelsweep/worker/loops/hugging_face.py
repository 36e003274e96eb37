"""Observes the Trainer of Hugging Face's transformers from outside, through its callback handler."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

_AFTER_STEPS = ("on_step_end", "on_epoch_end")
"""The events after which the Trainer logs, evaluates and saves if its control object says so."""


def observe_trainer(is_timed: Callable[[], bool], evaluated: Callable[[Mapping[str, Any]], None]) -> None:
    """While `is_timed`, keep the Trainer from logging, evaluating and saving; pass results to `evaluated`.

    Does nothing if the script has not imported the Trainer.
    """
    module: Any = sys.modules.get("transformers.trainer_callback")
    if module is None:
        return
    handler = module.CallbackHandler
    for name in _AFTER_STEPS:
        setattr(handler, name, _quiet(getattr(handler, name), is_timed))
    original = handler.on_evaluate

    @functools.wraps(original)
    def on_evaluate(self: Any, args: Any, state: Any, control: Any, metrics: Any, *rest: Any, **options: Any) -> Any:
        evaluated(metrics)
        return original(self, args, state, control, metrics, *rest, **options)

    handler.on_evaluate = on_evaluate


def _quiet(event: Callable[..., Any], is_timed: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(event)
    def quiet(*arguments: Any, **options: Any) -> Any:
        control = event(*arguments, **options)
        if is_timed():
            control.should_log = control.should_evaluate = control.should_save = False
        return control

    return quiet
