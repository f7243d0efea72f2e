"""English stop words."""

from __future__ import annotations

ENGLISH = frozenset(
    """a about above after again against all almost along already also although always am among an and another any
    anyone anything are around as at away back be became because become been before began being below between
    both but by came can cannot come could did do does doing done down during each either else enough even ever
    every few first for from further gave get give given go goes going gone got had has have having he hence her
    here hers herself him himself his how however i if in indeed instead into is it its itself just keep kept
    know last least less let like made make many may me might mine more moreover most much must my myself near
    neither never next no nobody none nor not nothing now of off often on once one only onto or other others our
    ours ourselves out over own per perhaps put quite rather really said same say says see seem seemed seems
    seen several shall she should since so some something soon still such take taken than that the their theirs
    them themselves then there therefore these they thing things this those though through thus to together too
    took toward towards two under until up upon us use used using very was way we well went were what whatever
    when where whether which while who whole whom whose why will with within without would yet you your yours
    yourself n't 's 're 'm 'll 'd 've""".split()
)
