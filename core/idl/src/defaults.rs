//! Defaults of scalars, which may depend on other scalars.

use alloc::vec;
use alloc::vec::Vec;

use crate::expr::Scope;
use crate::model::{Element, Expr, Param};
use crate::plan::{Part, PlanError, fit, name, no_value};
use crate::scalar::Scalar;

/// Gives every scalar input without a value its default.
pub(crate) fn fill(params: &[Param], values: &mut [Option<Scalar>]) -> Result<(), PlanError> {
    let pending = |index: usize| pending(params, values, index);
    let order = order(params.len(), |index| {
        if pending(index) { needs(&params[index], params.len()) } else { Vec::new() }
    });
    let order = order.map_err(|index| PlanError::Cycle { param: name(&params[index]) })?;
    for index in order {
        let param = &params[index];
        let (Some(element), Some(expr)) = (param.scalar(), &param.default) else { continue };
        if values[index].is_some() || !param.mode.is_sent() {
            continue;
        }
        let scope = Scope { params, scalars: values };
        let value = evaluate(scope, element, expr)
            .map_err(|cause| no_value(scope, param, Part::Default, expr, cause))?;
        values[index] = Some(fit(param, element, value)?);
    }
    Ok(())
}

fn pending(params: &[Param], values: &[Option<Scalar>], index: usize) -> bool {
    values[index].is_none() && params[index].default.is_some()
}

fn evaluate(
    scope: Scope<'_>,
    element: Element,
    expr: &Expr,
) -> Result<Scalar, crate::expr::EvalError> {
    if element.is_integer() {
        return scope.integer(expr).map(Scalar::I64);
    }
    scope.real(expr).map(Scalar::F64)
}

/// The parameters in the default of a parameter.
pub(crate) fn needs(param: &Param, params: usize) -> Vec<usize> {
    let mut found = Vec::new();
    if let Some(expr) = &param.default {
        expr.each_param(&mut |index| {
            found.extend(usize::try_from(index).ok().filter(|index| *index < params));
        });
    }
    found
}

impl Expr {
    /// Calls `found` with every parameter in the expression, in the order of the text.
    pub(crate) fn each_param(&self, found: &mut dyn FnMut(u32)) {
        let mut open = vec![self];
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Int(_) | Expr::Real(_) | Expr::Text(_) => {}
                Expr::Param(index) => found(*index),
                Expr::Unary(_, operand) => open.push(operand),
                Expr::Binary(_, left, right) => open.extend([&**right, &**left]),
                Expr::If(condition, then, otherwise) => {
                    open.extend([&**otherwise, &**then, &**condition]);
                }
                Expr::Call(_, arguments) => open.extend(arguments.iter().rev()),
            }
        }
    }
}

/// A topological order of `0..count` by `needs`; the error is a member of a cycle.
pub(crate) fn order(
    count: usize,
    needs: impl Fn(usize) -> Vec<usize>,
) -> Result<Vec<usize>, usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; count];
    let mut order = Vec::with_capacity(count);
    let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
    for root in 0..count {
        if state[root] == State::New {
            state[root] = State::Open;
            path.push((root, needs(root)));
        }
        while let Some((at, left)) = path.last_mut() {
            let at = *at;
            match left.pop() {
                Some(next) if state[next] == State::Open => return Err(next),
                Some(next) if state[next] == State::New => {
                    state[next] = State::Open;
                    path.push((next, needs(next)));
                }
                Some(_) => {}
                None => {
                    state[at] = State::Done;
                    order.push(at);
                    path.pop();
                }
            }
        }
    }
    Ok(order)
}
