"""Fenced host memory: memfd between inaccessible pages."""

from services.contracts import TensorSpec
from services.sandbox.fence.base import Buffer


class HostFence:
    """Fenced buffers in host memory."""

    def allocate(self, spec: TensorSpec) -> Buffer:
        """New zero-filled memory for one tensor."""
        raise NotImplementedError
