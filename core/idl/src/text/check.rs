//! Checks of a whole routine: the problems of [`Interface::problems`] at their places in the text, and unused parameters.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;

use super::diagnostic::{Code, Report, Span};
use super::routine::Routine;
use crate::model::{Expr, Interface, Type};
use crate::plan::Part;
use crate::validate::{Place, ProblemKind};

pub(super) fn check(routine: &Routine, report: &mut Report<'_>) {
    let problems = routine.interface.problems();
    for problem in &problems {
        report.add(
            code(problem.place, &problem.fault),
            place(routine, problem.place),
            problem.fault.to_string(),
        );
    }
    if problems.is_empty() {
        unused(routine, report);
    }
}

fn code(place: Place, fault: &ProblemKind) -> Code {
    match (place, fault) {
        (_, ProblemKind::Twice(_)) => Code::Twice,
        (Place::Part(_, Part::Default), _) => Code::Default,
        (Place::Part(..), _) => Code::Size,
        (Place::Routine | Place::Param(_) | Place::Inner(..), _) => Code::Param,
        (Place::CalcOrder | Place::Split | Place::Status | Place::Parallel, _) => Code::Attribute,
        _ => Code::Target,
    }
}

/// Where in the text a place of the description is.
fn place(routine: &Routine, place: Place) -> Span {
    let param = |index: usize| routine.spans.params.get(index);
    let dimension = |index: usize, dimension: usize, part: usize| {
        param(index).and_then(|param| param.dims.get(dimension)).map(|parts| parts[part])
    };
    let found = match place {
        Place::Routine => None,
        Place::Param(index) => param(index).map(|param| param.name),
        Place::Part(index, Part::Default) => param(index).map(|param| param.default),
        Place::Part(index, Part::Size(at)) => dimension(index, at, 0),
        Place::Part(index, Part::Start(at)) => dimension(index, at, 1),
        Place::Part(index, Part::End(at)) => dimension(index, at, 2),
        Place::Part(index, Part::Step(at)) => dimension(index, at, 3),
        Place::Inner(index, inner) => {
            param(index).and_then(|param| param.inner.get(inner)).copied()
        }
        Place::CalcOrder => Some(routine.spans.calc_order),
        Place::Split => Some(routine.spans.split),
        Place::Status => Some(routine.spans.status),
        Place::Parallel => Some(routine.spans.parallel),
        Place::Symbol => Some(routine.spans.symbol),
        Place::Argument(index) => routine.spans.arguments.get(index).copied(),
        Place::Result => Some(routine.spans.result),
        Place::Required(index) => routine.spans.required.get(index).copied(),
    };
    found.unwrap_or(routine.spans.name)
}

/// Warns of parameters that nothing uses.
fn unused(routine: &Routine, report: &mut Report<'_>) {
    let Interface { params, target, calc_order, split, parallel, .. } = &routine.interface;
    let mut used = BTreeSet::new();
    let mut sized = BTreeSet::new();
    let body = words(&target.body);
    if target.body.is_empty() {
        let mut add = |index| used.extend([index]);
        target.arguments.iter().for_each(|argument| argument.each_param(&mut add));
        used.extend(target.result);
    }
    let mut add = |index| sized.extend([index]);
    for param in params {
        param.each_expression(&mut |expr| expr.each_param(&mut add));
    }
    calc_order.iter().for_each(|expr| expr.each_param(&mut add));
    parallel.iter().for_each(|parallel| parallel.ranks.each_param(&mut add));
    sized.extend(*split);
    for ((index, param), places) in (0..).zip(params).zip(&routine.spans.params) {
        let name = &param.name;
        if used.contains(&index) || body.contains(name.as_str()) || sized.contains(&index) {
            continue;
        }
        let message = if param.mode.is_returned() {
            format!("`{name}` is not passed on: what comes back was never set")
        } else if matches!(param.ty, Type::Callback(_)) {
            format!("`{name}` is not passed on, so it is never called")
        } else {
            format!("`{name}` is neither passed on nor in a size")
        };
        report.add(Code::Unused, places.name, message);
    }
}

/// The names in C code.
fn words(code: &str) -> BTreeSet<&str> {
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect()
}

impl crate::model::Param {
    /// Calls `look` with every expression of its sizes and default.
    fn each_expression(&self, look: &mut dyn FnMut(&Expr)) {
        for dimension in &self.dims {
            dimension.parts(0).for_each(|(_, expr)| look(expr));
        }
        self.default.iter().for_each(look);
    }
}
