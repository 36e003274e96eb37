"""The names of files and folders that more than one module writes, reads or lists."""

SWEEPS, REPORTS = "sweeps", "reports"
"""The folders of all sweeps and of all reports, in a working directory."""

MANIFEST, FINDINGS = "manifest.json", "findings.json"
"""The plan of a sweep, and the numbers of its report."""

ACCOUNTING, PUBLISHED = "accounting.json", "published.json"
"""The cluster's account of a sweep's jobs, and the list of its copies in MLflow stores."""

RUNS, ATTEMPTS = "runs", "attempts"
"""The folder of a sweep's runs, and the one of a run's attempts."""

RECORD, STEPS, RUN_LOG, PROGRESS, TRACE = "record.json", "steps.parquet", "run.log", "progress", "trace.json.gz"
"""Files of a run and of its attempts."""

PAGE, MARKDOWN = "index.html", "report.md"
"""A report as a page, and as Markdown."""
