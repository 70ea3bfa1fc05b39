"""For people who add a method or a kind of factor: the suites that ours pass, and the models they use.

    from tightmap.testing import conformance, kind_conformance
    conformance(MySolver)                 # raises an AssertionError that names the promise and the model
    kind_conformance(model)               # the same for the kinds of the factors of a model

``conformance`` takes a solver class, an instance or the name of a registered method.  Under pytest, parametrise over
``promises()`` to see one test per promise and model.
"""

from tightmap.testing.conformance import conformance, promises
from tightmap.testing.kinds import kind_conformance

__all__ = ["conformance", "kind_conformance", "promises"]
