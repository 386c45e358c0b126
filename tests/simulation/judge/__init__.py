"""The judge: sentences in the words of a user, each a small function. It knows no rule numbers.

Facts come from the history of the server. The plans, the status and the views are asked only for what they say.
"""

from tests.simulation.judge import counts, end, foretold, harm, rollouts, standby, words
from tests.simulation.judge.sentence import SENTENCES, Violation, judge, judged

__all__ = [
    "SENTENCES",
    "Violation",
    "counts",
    "end",
    "foretold",
    "harm",
    "judge",
    "judged",
    "rollouts",
    "standby",
    "words",
]
