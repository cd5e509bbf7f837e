"""All checks, a file for each, in display order."""

from data_quality.check import Check, LookupCheck
from data_quality.checks.answers_in_range import AnswersInRange
from data_quality.checks.answers_match import AnswersMatch
from data_quality.checks.answers_usual import AnswersUsual
from data_quality.checks.calls_reconciled import CallsReconciled
from data_quality.checks.columns_filled import ColumnsFilled
from data_quality.checks.concurrency_held import ConcurrencyHeld
from data_quality.checks.errors_tolerated import ErrorsTolerated
from data_quality.checks.every_row_once import EveryRowOnce
from data_quality.checks.input_day_complete import InputDayComplete
from data_quality.checks.input_unchanged import InputUnchanged
from data_quality.checks.late_rows_marked import LateRowsMarked
from data_quality.checks.miss_share_usual import MissShareUsual
from data_quality.checks.one_answer_per_request import OneAnswerPerRequest
from data_quality.checks.order_held import OrderHeld
from data_quality.checks.outcomes_add_up import OutcomesAddUp
from data_quality.checks.retries_held import RetriesHeld
from data_quality.checks.time_limit_held import TimeLimitHeld
from data_quality.checks.timeouts_tolerated import TimeoutsTolerated
from data_quality.checks.vendor_chosen import VendorChosen
from data_quality.checks.watermarks_not_crossed import WatermarksNotCrossed
from data_quality.checks.windows_hold import WindowsHold

OF_THE_ROW: tuple[type[Check], ...] = (
    EveryRowOnce,
    InputUnchanged,
    OutcomesAddUp,
    OrderHeld,
    WatermarksNotCrossed,
    LateRowsMarked,
    InputDayComplete,
)
OF_A_WINDOW: tuple[type[WindowsHold], ...] = (WindowsHold,)
OF_A_LOOKUP: tuple[type[LookupCheck], ...] = (
    TimeLimitHeld,
    TimeoutsTolerated,
    ErrorsTolerated,
    RetriesHeld,
    ConcurrencyHeld,
    AnswersInRange,
    ColumnsFilled,
    AnswersMatch,
    OneAnswerPerRequest,
    MissShareUsual,
    AnswersUsual,
    CallsReconciled,
)
OF_A_WATERFALL: tuple[type[VendorChosen], ...] = (VendorChosen,)
