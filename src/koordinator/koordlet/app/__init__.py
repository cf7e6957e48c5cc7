"""The shell of the node agent: timers in, writes and reports out.

``agent``       the loop's body: what is due is measured, decided, written, reported
``node_state``  what the API server says of this node
``outbox``      what is to be said to the API server, so that an outage stops nothing here
``gates``       which features are on
``metrics``     what is measured of the agent itself
"""

from koordinator.koordlet.app.agent import Koordlet, KoordletOptions
from koordinator.koordlet.app.outbox import Outbox

__all__ = ["Koordlet", "KoordletOptions", "Outbox"]
