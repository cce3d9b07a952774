"""F5-TTS: its CFM, which integrates in sample() over padded frames, some of them given."""

from __future__ import annotations

from .host import Host
from .odehosts import Integrating

CFM = Integrating("CFM", "sample", real="mask", given="cond_mask")
HOST = Host("F5-TTS", CFM.knows, CFM.attach, call=None)  # it needs a voice to speak with
