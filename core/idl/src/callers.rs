//! What callers give and get by the names of parameters: in Python, in Java, and from the shell.

use crate::model::{Expr, Interface, Param, Type};

impl Interface {
    /// Whether callers may leave a parameter out: it has a default, or is the size of an array that is sent.
    #[must_use]
    pub fn is_optional(&self, param: &Param) -> bool {
        if param.is_array()
            || !param.mode.is_sent()
            || matches!(param.ty, Type::File | Type::Callback(_))
        {
            return false;
        }
        let arrays = self.params.iter().filter(|it| it.is_array() && it.mode.is_sent());
        let mut sizes =
            arrays.flat_map(|it| &it.dims).flat_map(|it| [Some(&it.size), it.end.as_ref()]);
        let is_it = |expr: Option<&Expr>| matches!(expr, Some(Expr::Param(at)) if self.params.get(*at as usize).is_some_and(|it| it.name == param.name));
        param.default.is_some() || sizes.any(is_it)
    }

    /// The parameters that come back, without the status, which is an exception where it is a failure.
    pub fn results(&self) -> impl Iterator<Item = &Param> {
        let is_status = |at: usize| self.status.is_some_and(|status| status as usize == at);
        let all = self.params.iter().enumerate();
        all.filter(move |(at, param)| param.mode.is_returned() && !is_status(*at))
            .map(|(_, param)| param)
    }
}
