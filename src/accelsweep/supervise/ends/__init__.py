"""The ends of runs, supervisors and their jobs: outcome, record, and words for a full disk or a lost job."""
