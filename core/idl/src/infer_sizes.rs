//! Inference of size parameters from the shapes of arrays.

use crate::model::{Expr, Interface, Param};
use crate::scalar::Scalar;

impl Interface {
    /// Fills in missing integer inputs from the shapes of arrays. A dimension defines a parameter if its size, or the end of its
    /// section, is just that parameter.
    ///
    /// - The first such dimension counts, in the order of parameters and dimensions.
    /// - If a matrix is passed as a vector, its last dimension is 1.
    /// - Contradictory shapes are no error here; the caller compares the plan with them.
    pub fn infer_sizes(&self, scalars: &mut [Option<Scalar>], shapes: &[Option<&[u64]>]) {
        for (param, shape) in self.params.iter().zip(shapes) {
            let Some(shape) = shape else { continue };
            let missing = param.dims.len().checked_sub(shape.len());
            if !matches!(missing, Some(0 | 1)) || shape.is_empty() {
                continue;
            }
            let lengths = shape.iter().copied().chain(core::iter::once(1));
            for (dimension, length) in param.dims.iter().zip(lengths) {
                for expr in dimension.end.iter().chain([&dimension.size]) {
                    self.learn(expr, length, scalars);
                }
            }
        }
    }

    fn learn(&self, expr: &Expr, length: u64, scalars: &mut [Option<Scalar>]) {
        let Expr::Param(index) = expr else { return };
        let Some(index) = usize::try_from(*index).ok() else { return };
        let integer = |param: &Param| {
            param.mode.is_sent() && param.scalar().is_some_and(crate::Element::is_integer)
        };
        let known = self.params.get(index).is_some_and(integer);
        if let Some(slot @ None) = scalars.get_mut(index).filter(|_| known) {
            *slot = Some(Scalar::U64(length));
        }
    }
}
