"""The front door: opens what a person points at, asks the tables once for each fact, judges them, keeps the answers.

Paths and a person's choices come in, facts and advice go out. It may import `advice`, `facts` and `tables`.
"""

from vmsonar_inspect.inspection.judgement import Inspection
from vmsonar_inspect.inspection.opening import judge_run, opened
from vmsonar_inspect.inspection.recorded import InspectionSettings

__all__ = ["Inspection", "InspectionSettings", "judge_run", "opened"]
