"""The report: one self-contained page from any number of runs, with its figures and tables as files."""

from critex.report.build import ReportResult, report_suite, write_report, write_suite_report

__all__ = ["ReportResult", "report_suite", "write_report", "write_suite_report"]
