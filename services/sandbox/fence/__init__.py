"""Memory that crosses between judge and runners, with guard pages around every tensor."""

from services.sandbox.fence.base import Buffer, Fence
from services.sandbox.fence.host import HostFence

__all__ = ["Buffer", "Fence", "HostFence"]
