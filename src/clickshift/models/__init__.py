"""Click models: one class per model, closely related ones in one file.

A model is a frozen dataclass of its parameters. `MODELS` is the registry of models by name; error messages,
command-line choices and test parameters are made from it.
"""

from typing import TypeVar

from clickshift.models.arm import ARM as ARM
from clickshift.models.arm import ARM_NC as ARM_NC
from clickshift.models.base import ClickModel as ClickModel
from clickshift.models.cacm_minus import CACM_minus as CACM_minus
from clickshift.models.carousel import Carousel as Carousel
from clickshift.models.cascade_models import CCM as CCM
from clickshift.models.cascade_models import CM as CM
from clickshift.models.cascade_models import DCM as DCM
from clickshift.models.coec import COEC as COEC
from clickshift.models.complex_browsing import ComplexBrowsing as ComplexBrowsing
from clickshift.models.complex_browsing import ExpectedComplexBrowsing as ExpectedComplexBrowsing
from clickshift.models.ctr import DCTR as DCTR
from clickshift.models.ctr import DRCTR as DRCTR
from clickshift.models.ctr import GCTR as GCTR
from clickshift.models.ctr import RCTR as RCTR
from clickshift.models.dbn import DBN as DBN
from clickshift.models.dbn import SDBN as SDBN
from clickshift.models.mixture import Mixture as Mixture
from clickshift.models.ncm import NCM as NCM
from clickshift.models.neural import NeuralModel as NeuralModel
from clickshift.models.pbm import PBM as PBM
from clickshift.models.popularity import RankTopObs as RankTopObs
from clickshift.models.popularity import TopPop as TopPop
from clickshift.models.popularity import TopPopObs as TopPopObs
from clickshift.models.segmented import Segmented as Segmented
from clickshift.models.soft_dbn import SoftDBN as SoftDBN
from clickshift.models.trust_pbm import TrustPBM as TrustPBM
from clickshift.models.ubm import UBM as UBM

__all__ = [
    "ARM",
    "ARM_NC",
    "CCM",
    "CM",
    "COEC",
    "DBN",
    "DCM",
    "DCTR",
    "DRCTR",
    "GCTR",
    "MODELS",
    "NCM",
    "PBM",
    "RCTR",
    "SDBN",
    "UBM",
    "CACM_minus",
    "Carousel",
    "ClickModel",
    "ComplexBrowsing",
    "Mixture",
    "NeuralModel",
    "RankTopObs",
    "Segmented",
    "SoftDBN",
    "TopPop",
    "TopPopObs",
    "TrustPBM",
    "model_name",
    "model_title",
    "register",
]

MODELS = {
    "gCTR": "clickshift.models.ctr:GCTR",
    "rCTR": "clickshift.models.ctr:RCTR",
    "dCTR": "clickshift.models.ctr:DCTR",
    "drCTR": "clickshift.models.ctr:DRCTR",
    "COEC": "clickshift.models.coec:COEC",
    "TopPop": "clickshift.models.popularity:TopPop",
    "TopPopObs": "clickshift.models.popularity:TopPopObs",
    "RankTopObs": "clickshift.models.popularity:RankTopObs",
    "PBM": "clickshift.models.pbm:PBM",
    "UBM": "clickshift.models.ubm:UBM",
    "CM": "clickshift.models.cascade_models:CM",
    "DCM": "clickshift.models.cascade_models:DCM",
    "CCM": "clickshift.models.cascade_models:CCM",
    "SDBN": "clickshift.models.dbn:SDBN",
    "DBN": "clickshift.models.dbn:DBN",
    "NCM": "clickshift.models.ncm:NCM",
    "CACM_minus": "clickshift.models.cacm_minus:CACM_minus",
    "ARM": "clickshift.models.arm:ARM",
    "ARM_NC": "clickshift.models.arm:ARM_NC",
    "Mixture": "clickshift.models.mixture:Mixture",
    "Segmented": "clickshift.models.segmented:Segmented",
    "TrustPBM": "clickshift.models.trust_pbm:TrustPBM",
    "ComplexBrowsing": "clickshift.models.complex_browsing:ComplexBrowsing",
    "ExpectedComplexBrowsing": "clickshift.models.complex_browsing:ExpectedComplexBrowsing",
    "Carousel": "clickshift.models.carousel:Carousel",
    "SoftDBN": "clickshift.models.soft_dbn:SoftDBN",
}
"""Models by name, as "module:class"; `register` adds to it."""


_Model = TypeVar("_Model", bound=type[ClickModel])


def register(model: _Model) -> _Model:
    """Register a click model under the name of its class: a class decorator.

    Learners, `load_model` and texts such as "Gradient('MyModel')" then find the model in every program that imports
    the module which defines it.

    Parameters
    ----------
    model
        A subclass of `ClickModel`; of `NeuralModel` if `Gradient` is to fit it.

    Returns
    -------
    type
        The same class.

    Examples
    --------
    >>> from clickshift.models import MODELS, NeuralModel, register
    >>> @register
    ... class MyModel(NeuralModel):
    ...     pass
    >>> "MyModel" in MODELS
    True
    >>> del MODELS["MyModel"]
    """
    MODELS[model.__name__] = f"{model.__module__}:{model.__qualname__}"
    return model


def model_name(model: ClickModel) -> str:
    """Return the name under which a model is registered.

    Parameters
    ----------
    model
        A click model.

    Returns
    -------
    str
        The name in `MODELS`, e.g. "dCTR" for the class `DCTR`; the name of the class if it is not registered.
    """
    class_name = type(model).__name__
    return next((name for name, path in MODELS.items() if path.endswith(f":{class_name}")), class_name)


def model_title(model: ClickModel) -> str:
    """Return the name of a model as people read it: "PBM by device" for one with segments.

    Parameters
    ----------
    model
        A click model.

    Returns
    -------
    str
        The name.
    """
    title: str = getattr(model, "title", "") or model_name(model)
    return title
