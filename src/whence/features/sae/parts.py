"""The parts that an autoencoder is composed of: every folder a registry, every file a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.features.data.base import Data
from whence.features.sae.centering.base import Centre
from whence.features.sae.encoders.base import Encoder
from whence.features.sae.inits.base import Start
from whence.features.sae.losses.base import Loss
from whence.features.sae.masks.base import Mask
from whence.features.sae.norms.base import Norm
from whence.features.sae.schedules.base import Schedule
from whence.features.sae.sparsity.base import Sparsity
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry("whence.features.data", Data)
CENTRES: Registry[Centre] = Registry("whence.features.sae.centering", Centre)
ENCODERS: Registry[Encoder] = Registry("whence.features.sae.encoders", Encoder)
NORMS: Registry[Norm] = Registry("whence.features.sae.norms", Norm)
MASKS: Registry[Mask] = Registry("whence.features.sae.masks", Mask)
SPARSITY: Registry[Sparsity] = Registry("whence.features.sae.sparsity", Sparsity)
LOSSES: Registry[Loss] = Registry("whence.features.sae.losses", Loss)
SCHEDULES: Registry[Schedule] = Registry("whence.features.sae.schedules", Schedule)
STARTS: Registry[Start] = Registry("whence.features.sae.inits", Start)

if TYPE_CHECKING:
    DataChoice = CentreChoice = EncoderChoice = NormChoice = MaskChoice = Choice
    SparsityChoice = LossChoice = ScheduleChoice = StartChoice = Choice
else:
    DataChoice, CentreChoice, EncoderChoice, NormChoice = (r.union() for r in (DATA, CENTRES, ENCODERS, NORMS))
    MaskChoice, SparsityChoice, LossChoice = (r.union() for r in (MASKS, SPARSITY, LOSSES))
    ScheduleChoice, StartChoice = SCHEDULES.union(), STARTS.union()
