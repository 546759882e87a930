"""Reports: what came out of runs, as one page, as figures, as tables."""

from critex.report.build import ReportResult, final_scores, write_report, write_suite_report
from critex.report.methods import FinalScore
from critex.report.stats import Summary
from critex.report.terminal import score_table

__all__ = [
    "FinalScore",
    "ReportResult",
    "Summary",
    "final_scores",
    "score_table",
    "write_report",
    "write_suite_report",
]
