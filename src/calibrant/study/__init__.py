"""Studies: losses × networks × data × calibrators × shifts × seeds from one file, resumable."""

from calibrant.study._execute import StudyError
from calibrant.study._executors import Executor, Outcome
from calibrant.study._findings import answer, findings
from calibrant.study._local import Local
from calibrant.study._ray import Ray
from calibrant.study._records import Evaluation, Run, calibrated_top
from calibrant.study._run import Status, run_study, status
from calibrant.study._select import Candidate, Choice, select
from calibrant.study._spec import Study
from calibrant.study._tune import Trial, Tuned, tune

EXECUTORS: dict[str, type[Executor]] = {"local": Local, "ray": Ray}
"""Every executor by its name on the command line; its options are its fields."""

__all__ = [
    "EXECUTORS",
    "Candidate",
    "Choice",
    "Evaluation",
    "Executor",
    "Local",
    "Outcome",
    "Ray",
    "Run",
    "Status",
    "Study",
    "StudyError",
    "Trial",
    "Tuned",
    "answer",
    "calibrated_top",
    "findings",
    "run_study",
    "select",
    "status",
    "tune",
]
