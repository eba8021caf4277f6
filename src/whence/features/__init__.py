"""Which learned features are about position? Sparse autoencoders that know where activations come from."""

from typing import TYPE_CHECKING

from whence.lazy import lazily

if TYPE_CHECKING:
    from whence.features.activations.store import Collection
    from whence.features.api import collect, collect_module, load, profiles
    from whence.features.evals.profiles import FeatureProfiles
    from whence.features.sae.autoencoder import Autoencoder

__all__ = ["Autoencoder", "Collection", "FeatureProfiles", "collect", "collect_module", "load", "profiles"]

_MODULES = {
    "Autoencoder": "whence.features.sae.autoencoder",
    "Collection": "whence.features.activations.store",
    "FeatureProfiles": "whence.features.evals.profiles",
}
__getattr__, __dir__ = lazily(__name__, {name: _MODULES.get(name, "whence.features.api") for name in __all__})
