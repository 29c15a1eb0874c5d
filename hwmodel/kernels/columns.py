"""Where each quantity stands in the arrays that kernels read and write. Units are SI.

``device[q, row, column]``: hardware of one pool of chips (or of one link between pools) at point q.
``where[op, column]``: which row, operand type, memory tier and link an op uses.
``out[q, op, column]``: what a kernel answers; zeros when it is called.
"""

# --- device ---------------------------------------------------------------------------------------------------------
CORES = 0  # units that work on one tile each; 0: no quantisation into tiles and waves (the ideal floor)
LAUNCH = 1  # s, fixed cost of an op
RAMP = 2  # s, until memory streams at full rate
VECTOR = 3  # FLOP/s outside the matrix units
EXPONENTIALS = 4  # 1/s; 0: not counted
COMPUTE_EFFICIENCY = 5
ATTENTION_EFFICIENCY = 6
SPLIT_K = 7  # 1: cores may share an output tile
CACHE_BYTES = 8  # capacity of the on-chip cache; 0: none
CACHE_BANDWIDTH = 9  # B/s
FREE_ACTIVATIONS = 10  # 1: activations cost nothing (the ideal floor)
HIDDEN_COLLECTIVES = 11  # 1: the schedule hides communication behind compute
TILES = 12  # four pairs (rows, columns), 0 when absent
N_TILES = 4
PEAK = TILES + 2 * N_TILES  # FLOP/s, one per entry of DTYPES, 0 when the chip has none
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "mxfp8", "fp6", "int4", "nvfp4", "mxfp4")
TIER = PEAK + len(DTYPES)  # B/s as reached (peak x efficiency), one per memory tier
N_TIERS = 4
LINK = (
    TIER + N_TIERS
)  # per link: bandwidth B/s as reached, latency s, domain, 1 if it reduces, topology, B/s to one peer (0: no limit)
N_LINKS = 4
LINK_WIDTH = 6
TOPOLOGIES = ("switch", "all_to_all", "ring", "torus", "point_to_point")
SHARPNESS = LINK + N_LINKS * LINK_WIDTH  # p of t = (compute^p + memory^p)^(1/p); 0: the larger of the two
CORRECTION = SHARPNESS + 1  # 1 + number of the measured correction in the table of `correct`; 0: none
EXCHANGE = CORRECTION + 1  # s, fixed cost of a collective, where measured: beside it the links then have no latency
N_DEVICE = EXCHANGE + 1

# --- where ----------------------------------------------------------------------------------------------------------
ROW = 0  # row of `device`
DTYPE = 1  # index into PEAK
WEIGHT_TIER = 2
CACHE_TIER = 3  # tier of the KV cache
LINK_SLOT = 4
WARM = 5  # sets of operands that a benchmark takes in turn, which are in the on-chip cache if they fit; 0: no benchmark
N_WHERE = 6

# --- bins -----------------------------------------------------------------------------------------------------------
# ``bins[op, j]`` = (inclusion probability of an expert per token, how many local experts have it), for expert ops
N_BINS = 16

# --- out ------------------------------------------------------------------------------------------------------------
TIME = 0  # s, one execution on one chip
COMPUTE = 1  # s
MEMORY = 2  # s
WIRE = 3  # s on links
OVERHEAD = 4  # s: launch, latency
FLOPS = 5  # matrix FLOP on one chip
WEIGHT_BYTES = 6  # read
KV_BYTES = 7  # read and written
ACTIVATION_BYTES = 8
WIRE_BYTES = 9  # sent by one chip
BOUND_TIER = 10  # tier that takes longest
N_OUT = 11
