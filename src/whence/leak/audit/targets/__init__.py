"""Models as audits see them: one file for each way to make one."""
