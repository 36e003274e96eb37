"""One rank of a run: trains, measures and writes the result. Requires only torch and the standard library."""

import os

from accelsweep.worker.lightning_alias import PACKAGE_VARIABLE, use_pytorch_lightning

if os.environ.get(PACKAGE_VARIABLE) == "pytorch_lightning":  # must precede every import of Lightning
    use_pytorch_lightning()
