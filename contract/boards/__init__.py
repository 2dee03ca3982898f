"""The panels of the dashboards, as data: what each shows, of which queries, and what it means; a module a dashboard."""

from __future__ import annotations

from boards.egress import EGRESS
from boards.gateway import GATEWAY
from boards.images import IMAGES
from boards.model import Board
from boards.overview import OVERVIEW
from boards.pools import POOLS
from boards.slow import SLOW
from boards.tenants import TENANTS

BOARDS: tuple[Board, ...] = (OVERVIEW, SLOW, POOLS, GATEWAY, EGRESS, IMAGES, TENANTS)
