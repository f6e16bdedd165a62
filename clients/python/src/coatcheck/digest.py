"""What makes a request the same."""

from __future__ import annotations

import base64
import hashlib
from typing import Union


def fingerprint(*parts: Union[str, bytes]) -> str:
    """A digest of what makes a request the same: SHA-256 over the parts, each after its length in
    bytes. Of anything but text and bytes two could look the same: make it one, such as by
    json.dumps.
    """
    digest = hashlib.sha256()
    for part in parts:
        if not isinstance(part, (str, bytes)):
            raise TypeError("a part of a fingerprint is a str or bytes: make it one, such as by json.dumps")
        part = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:%s," % (len(part), part))
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
