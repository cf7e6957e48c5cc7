"""Shell of the node agent: timers in, writes and reports out.

``agent``       main loop: measure, decide, apply, report
``assembly``    construction of the agent from the ports of its machine
``parts``       parts of the agent that the assembly builds
``node_state``  state of this node from the API server
``outbox``      queued writes to the API server, so that an outage does not block the loop
``options``     options and feature gates
``metrics``     metrics of the node and of the agent
"""

from koordinator.koordlet.app.agent import Koordlet
from koordinator.koordlet.app.assembly import assemble_agent
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.app.outbox import Outbox

__all__ = ["Koordlet", "KoordletOptions", "Outbox", "assemble_agent"]
