"""The things trained: LightningModules, DataModules, models, data generators. Ours follow no rule that yours need not."""
