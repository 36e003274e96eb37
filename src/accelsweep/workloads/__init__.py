"""The trained things: LightningModules, DataModules, models, data generators. The user's own need nothing from ours."""
