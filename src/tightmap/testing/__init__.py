"""For people who add a method: the suite that every method of this library passes, and the models it uses.

    from tightmap.testing import conformance
    conformance(MySolver)                 # raises an AssertionError that names the promise and the model

``conformance`` takes a solver class, an instance or the name of a registered method.  Under pytest, parametrise over
``promises()`` to see one test per promise and model.
"""

from tightmap.testing.conformance import conformance, promises

__all__ = ["conformance", "promises"]
