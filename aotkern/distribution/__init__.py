"""Distribution: bundles and their signatures to and from OCI registries and plain stores.

`push` and `pull` work on a `Remote`: a `registry.Registry` or a `stores.Store`. A remote is not believed in anything:
what comes from it is bounded, hashed, and has passed the trust check before it gets its name on disk.
"""

from aotkern.distribution.remote import Offer, Package, Piece, Remote, Wanted
from aotkern.distribution.transfer import Pulled, package, pull, push

__all__ = ["Offer", "Package", "Piece", "Pulled", "Remote", "Wanted", "package", "pull", "push"]
