"""`model=distillation`: a student that learns from a teacher's answers. Its class is named by `model._target_`."""

from accelsweep.registry import Feature

FEATURE = Feature(name="distillation")
