"""The parts that an autoencoder is composed of: every folder a registry, every file a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.features.centres.base import Centre
from whence.features.data.base import Data
from whence.features.encoders.base import Encoder
from whence.features.losses.base import Loss
from whence.features.masks.base import Mask
from whence.features.norms.base import Norm
from whence.features.schedules.base import Schedule
from whence.features.sparsity.base import Sparsity
from whence.features.starts.base import Start
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry("whence.features.data", Data)
CENTRES: Registry[Centre] = Registry("whence.features.centres", Centre)
ENCODERS: Registry[Encoder] = Registry("whence.features.encoders", Encoder)
NORMS: Registry[Norm] = Registry("whence.features.norms", Norm)
MASKS: Registry[Mask] = Registry("whence.features.masks", Mask)
SPARSITY: Registry[Sparsity] = Registry("whence.features.sparsity", Sparsity)
LOSSES: Registry[Loss] = Registry("whence.features.losses", Loss)
SCHEDULES: Registry[Schedule] = Registry("whence.features.schedules", Schedule)
STARTS: Registry[Start] = Registry("whence.features.starts", Start)

if TYPE_CHECKING:
    DataChoice = CentreChoice = EncoderChoice = NormChoice = MaskChoice = Choice
    SparsityChoice = LossChoice = ScheduleChoice = StartChoice = Choice
else:
    DataChoice, CentreChoice, EncoderChoice, NormChoice = (r.union() for r in (DATA, CENTRES, ENCODERS, NORMS))
    MaskChoice, SparsityChoice, LossChoice = (r.union() for r in (MASKS, SPARSITY, LOSSES))
    ScheduleChoice, StartChoice = SCHEDULES.union(), STARTS.union()
