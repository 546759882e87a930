"""The methods of the paper's Table 1 on the same problems and protocol, one file each."""

from critex.theory.peers.acb import ACB
from critex.theory.peers.bdqn import BDQN
from critex.theory.peers.lmcdqn import LMCDQN
from critex.theory.peers.lsvi_phe import LSVIPHE
from critex.theory.peers.lsvi_ucb import LSVIUCB
from critex.theory.peers.nn_ucb import NNUCB
from critex.theory.peers.opt_rlsvi import OPTRLSVI

__all__ = ["ACB", "BDQN", "LMCDQN", "LSVIPHE", "LSVIUCB", "NNUCB", "OPTRLSVI"]
