"""Ranking: leaderboards of models, texts or people from votes on pairs, with intervals and ranks that can be told apart."""

from crowdwise.ranking.bradley_terry import BradleyTerry, WinProbability
from crowdwise.ranking.votes import Votes
from crowdwise.ranking.win_rate import tally, win_rate

__all__ = ["BradleyTerry", "Votes", "WinProbability", "tally", "win_rate"]
