"""Copy records into MLflow: one way, idempotent, by a writer that no run waits for. MLflow is never read back as data.

A sweep becomes an experiment, a cell a parent run, a repeat a child run, a revision of the plan a `report` run. Every
publisher computes the same target (`wanted`), looks at the content of the store (`store`) and writes the difference
(`writer`). If one is killed at any instant, the next one continues from the store's content.
"""
