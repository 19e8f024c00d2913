"""What all suites share: processes for rows, times, tables, verdicts and the result file."""
