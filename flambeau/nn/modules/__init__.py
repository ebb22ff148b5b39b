"""The layers."""

from flambeau.nn.modules.container import *  # noqa: F403
from flambeau.nn.modules.dropout import *  # noqa: F403
from flambeau.nn.modules.linear import *  # noqa: F403
from flambeau.nn.modules.module import *  # noqa: F403
from flambeau.nn.modules.normalization import *  # noqa: F403
from flambeau.nn.modules.sparse import *  # noqa: F403
