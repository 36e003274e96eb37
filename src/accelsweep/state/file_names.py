"""The names of files and folders that more than one module writes, reads or lists."""

SWEEPS_FOLDER, REPORTS_FOLDER = "sweeps", "reports"
"""The folders of all sweeps and of all reports, in a working directory."""

MANIFEST_FILE, FINDINGS_FILE = "manifest.json", "findings.json"
"""The plan of a sweep, and the numbers of its report."""

ACCOUNTING_FILE, PUBLISHED_FILE = "accounting.json", "published.json"
"""The cluster's account of a sweep's jobs, and the list of its copies in MLflow stores."""

RUNS_FOLDER, ATTEMPTS_FOLDER = "runs", "attempts"
"""The folder of a sweep's runs, and the one of a run's attempts."""

RECORD_FILE, STEPS_FILE, LOG_FILE = "record.json", "steps.parquet", "run.log"
"""Files of a run: its record, its raw step times, the output of its processes."""

STARTED_FILE, PROGRESS_FILE, TRACE_FILE = "started.json", "progress", "trace.json.gz"
"""Files of an attempt: the mark of one without an end, the number of finished steps, the trace of a profile."""

PAGE, MARKDOWN = "index.html", "report.md"
"""A report as a page, and as Markdown."""
