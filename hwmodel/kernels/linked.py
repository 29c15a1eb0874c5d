"""How functions that kernels call are compiled: into their callers, where they are optimised and become machine code once.

numba on its own turns every function into machine code and optimises it again in each caller, for each constant that it is
called with. A first run then takes about twice as long. The names here are those of numba 0.60 to 0.68.
"""

from typing import Any

from numba import config, njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference, PreLowerStripPhis
from numba.core.untyped_passes import FixupArgs, GenericRewrites, IRProcessing, ReconstructSSA, TranslateByteCode

_settings: Any = config
INTERPRETED = bool(_settings.DISABLE_JIT)
"""Nothing is compiled (NUMBA_DISABLE_JIT): kernels are the functions they are written as."""


class Part(JITCodeLibrary):
    """Code that is linked into its callers as it is."""

    def _optimize_final_module(self) -> None:
        """Nothing: it is optimised in its callers."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class Offer(AnalysisPass):
    """Make a function that has no machine code known to its callers."""

    _name = "offer_to_callers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Insert it where callers look; the code itself does not change."""
        key: Any = [].append  # callers find the code by a built-in function, which this one is, like no other
        lowered = state["cr"]
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=key)
        return False


class Linking(CompilerBase):
    """numba's compiler up to its last step, machine code, without its passes for what no function here has.

    Those are closures, `with`, arrays that are worked on as a whole, loops over tuples of unlike types, and branches on types.
    """

    PASSES = (
        TranslateByteCode, FixupArgs, IRProcessing, GenericRewrites, ReconstructSSA, NopythonTypeInference, PreLowerStripPhis,
        IRLegalization, NativeLowering, Offer, NoPythonBackend,
    )  # fmt: skip

    def define_pipelines(self) -> list[Any]:
        """The passes of a function that runs without Python's objects."""
        self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.flags.no_compile = True
        passes = PassManager("linking")
        for one in self.PASSES:
            passes.add_pass(one, one.name())
        passes.finalize()
        return [passes]


def linked(function: Any, **options: Any) -> Any:
    """Compile a function for other kernels, not for Python: without reference counts, so it may make no array.

    One version for all constants: f(0) and f(n) call the same code.
    """
    if INTERPRETED:
        return function
    unwrapped: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    found: Any = njit(pipeline_class=Linking, **unwrapped, **options)(function)
    template = found.get_call_template
    found.get_call_template = lambda args, kws: template(
        [types.unliteral(given) for given in args], {name: types.unliteral(given) for name, given in kws.items()}
    )
    return found
