"""One broker: starts everything, and stops it in the opposite order.

    1  log directories   locked, identified, their logs loaded and recovered
    2  store             a session; the cluster's id, which has to be that of the directories
    3  listeners         bound, so that the ports are known
    4  registration      `/brokers/ids/N`; from here on the controller knows of us
    5  controller        the race for it, and if it is won, a reign
    6  housekeeping      checkpoints, retention, flushes, idle connections

Nothing here decides anything; it connects those who do. All of the world comes in as `World`.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek.broker.apis.fetch import FetchApi
from odradek.broker.apis.produce import ProduceApi
from odradek.broker.apis.table import routes
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.lifecycle import Lifecycle
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.orders import Orders
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.purgatory import Purgatory
from odradek.broker.quotas import NoQuotas
from odradek.broker.replica_manager import ReplicaManager
from odradek.broker.request_loop import RequestLoop
from odradek.broker.session import AllowAll
from odradek.broker.settings import TopicSettingsBook
from odradek.broker.tasks import Tasks
from odradek.broker.topic_maker import InternalTopics, TopicMaker
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.log.logs import Logs
from odradek.model.cluster import EndPoint
from odradek.net.connection import Connection
from odradek.net.server import ConnectionLimits, Server
from odradek.obs.metrics import BrokerMetrics

log = logging.getLogger(__name__)
SLOW_REQUEST_MS = 1_000
