"""The things trained: LightningModules, DataModules, models, data generators. Yours need nothing that ours have."""
