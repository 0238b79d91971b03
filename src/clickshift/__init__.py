"""clickshift: learn from clicks on ranked lists.

The public names are listed in `__init__.pyi`. Each is imported from its module when it is first used, so that
`import clickshift` costs next to nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
