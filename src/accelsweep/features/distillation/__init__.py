"""`model=distillation`: a student that learns from a teacher's outputs. `model._target_` specifies the class."""

from accelsweep.registry import Feature

FEATURE = Feature(name="distillation")
