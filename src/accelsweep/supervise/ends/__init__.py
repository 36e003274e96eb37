"""How runs, supervisors and their jobs end: the outcome, the record, and words for a full disk or a lost job."""
