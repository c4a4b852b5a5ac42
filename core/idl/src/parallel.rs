//! Parallel routines: calls that run as jobs of a cluster.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::expr::Scope;
use crate::expr_display::ExprDisplay;
use crate::model::{Expr, Interface, Language, Mode, Param, Type};
use crate::plan::PlanError;
use crate::scalar::Scalar;
use crate::validate::{ProblemKind, shortened};

/// The job of a parallel routine (`Parallel`). All ranks call the routine with the caller's scalars and texts. Only rank 0 gets
/// arrays, except for those of `broadcast`. The results are those of rank 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// The number of ranks, an integer expression of scalar inputs; 0: the server decides.
    pub ranks: Expr,
    /// Indices of the arrays that all ranks get (`@broadcast(A)`), ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broadcast: Vec<u32>,
}

impl Interface {
    /// Whether all ranks get an array.
    #[must_use]
    pub fn is_broadcast(&self, param: usize) -> bool {
        let listed = |parallel: &Parallel| {
            u32::try_from(param).is_ok_and(|param| parallel.broadcast.contains(&param))
        };
        self.parallel.as_ref().is_some_and(listed)
    }

    /// The number of ranks of a call with these scalars by parameter, with defaults ([`crate::Argument::scalar`]). `None`: the
    /// routine is no job; 0: the server decides.
    ///
    /// # Errors
    /// [`PlanError`]: the expression has no value, or is negative.
    pub fn ranks(&self, scalars: &[Option<Scalar>]) -> Result<Option<u64>, PlanError> {
        self.ranks_in(Scope { params: &self.params, scalars })
    }

    /// The number of ranks as text in a description; `None`: the routine is no job.
    #[must_use]
    pub fn parallel_text(&self) -> Option<String> {
        Some(self.shown(&self.parallel.as_ref()?.ranks))
    }

    /// An expression of the routine's parameters as text in a description.
    #[must_use]
    pub fn shown(&self, expr: &Expr) -> String {
        ExprDisplay { expr, params: &self.params }.to_string()
    }

    pub(crate) fn ranks_in(&self, scope: Scope<'_>) -> Result<Option<u64>, PlanError> {
        let Some(parallel) = &self.parallel else { return Ok(None) };
        let shown = || ExprDisplay { expr: &parallel.ranks, params: scope.params }.to_string();
        let value = scope
            .integer(&parallel.ranks)
            .map_err(|cause| PlanError::Ranks { expression: shown(), cause })?;
        let ranks = u64::try_from(value)
            .map_err(|_| PlanError::NegativeRanks { expression: shown(), value })?;
        Ok(Some(ranks))
    }
}

/// Problems of a parallel routine other than those of the expression.
pub(crate) fn faults(interface: &Interface, parallel: &Parallel) -> Vec<ProblemKind> {
    let mut faults = Vec::new();
    if interface.target.language == Language::Python {
        faults.push(ProblemKind::ParallelPython);
    }
    if !interface.class.is_empty() {
        faults.push(ProblemKind::ParallelMethod);
    }
    let across = |param: &Param| matches!(param.ty, Type::Callback(_) | Type::File);
    if let Some(param) = interface.params.iter().find(|param| across(param)) {
        faults.push(ProblemKind::ParallelParam(shortened(&param.name)));
    }
    let mut seen = BTreeSet::new();
    if parallel.broadcast.windows(2).any(|pair| pair[0] > pair[1]) {
        faults.push(ProblemKind::BroadcastOrder);
    }
    for index in &parallel.broadcast {
        let param = usize::try_from(*index).ok().and_then(|index| interface.params.get(index));
        match param {
            None => faults.push(ProblemKind::Unknown(*index)),
            Some(param) if !seen.insert(*index) => {
                faults.push(ProblemKind::Twice(shortened(&param.name)));
            }
            Some(param) => {
                let array = param.is_array();
                if !array || !matches!(param.mode, Mode::In | Mode::InOut) {
                    faults.push(ProblemKind::NotBroadcast(shortened(&param.name)));
                }
            }
        }
    }
    faults
}
