"""The things trained: LightningModules, DataModules, models, data generators."""
