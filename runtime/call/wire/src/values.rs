//! Conversion of scalars and texts between the wire and descriptions.

use kumi_idl::{ArgumentForm, Expr, Interface, Limits, Plan, PlanError, Scalar, Type};
use kumi_rpc::{Code, Failure, Value};

/// Values of a call by parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenValues {
    /// Given scalars; the others have defaults.
    pub scalars: Vec<Option<Scalar>>,
    /// Texts that are sent, with defaults filled in.
    pub texts: Vec<Option<String>>,
    /// Lengths of the files that are sent.
    pub files: Vec<Option<u64>>,
}

/// A scalar as a value on the wire.
pub fn to_wire(scalar: Scalar) -> Value {
    match scalar {
        Scalar::I64(value) => Value::I64(value),
        Scalar::U64(value) => Value::U64(value),
        Scalar::F64(value) => Value::F64(value),
        Scalar::Complex(real, imaginary) => Value::Complex(real, imaginary),
    }
}

/// The scalar of a value on the wire.
pub fn to_scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::I64(value) => Scalar::I64(*value),
        Value::U64(value) => Scalar::U64(*value),
        Value::F64(value) => Scalar::F64(*value),
        Value::Complex(real, imaginary) => Scalar::Complex(*real, *imaginary),
        Value::Text(_) | Value::FileLength(_) => return None,
    })
}

impl GivenValues {
    /// No values.
    #[must_use]
    pub fn nothing(interface: &Interface) -> GivenValues {
        let count = interface.params.len();
        GivenValues {
            scalars: vec![None; count],
            texts: vec![None; count],
            files: vec![None; count],
        }
    }

    /// The values that arrived with a call.
    ///
    /// # Errors
    /// The values do not fit the description.
    pub fn from_wire(
        interface: &Interface,
        values: &[(u16, Value)],
    ) -> Result<GivenValues, Failure> {
        let mut given = GivenValues::nothing(interface);
        for (index, value) in values {
            let at = usize::from(*index);
            let param = interface.params.get(at);
            let wrong = |why: &str| bad(i64::from(*index), format!("argument {index}: {why}"));
            let param = param.ok_or_else(|| wrong("the routine has fewer parameters"))?;
            match value {
                Value::Text(text) => {
                    if param.ty != Type::String || !param.mode.is_sent() {
                        return Err(wrong("it takes no text"));
                    }
                    if text.contains('\0') {
                        return Err(wrong("a text with a zero byte"));
                    }
                    given.texts[at] = Some(text.clone());
                }
                Value::FileLength(bytes) => {
                    if param.ty != Type::File || !param.mode.is_sent() {
                        return Err(wrong("it takes no file"));
                    }
                    given.files[at] = Some(*bytes);
                }
                number => given.scalars[at] = to_scalar(number),
            }
        }
        given.fill_texts(interface)?;
        Ok(given)
    }

    /// Fills in the defaults of texts, and checks that files are given.
    pub fn fill_texts(&mut self, interface: &Interface) -> Result<(), Failure> {
        for ((index, param), file) in (0..).zip(&interface.params).zip(&self.files) {
            if param.ty == Type::File && param.mode.is_sent() && file.is_none() {
                return Err(bad(index, format!("no file was given for `{}`", param.name)));
            }
        }
        for ((index, param), text) in (0..).zip(&interface.params).zip(&mut self.texts) {
            if param.ty == Type::String && param.mode.is_sent() && text.is_none() {
                let Some(Expr::Text(default)) = &param.default else {
                    let text = format!("`{}` has no value and no default", param.name);
                    return Err(bad(index, text));
                };
                *text = Some(default.clone());
            }
        }
        Ok(())
    }

    /// The values to send, by parameter.
    pub fn to_wire(&self) -> Vec<(u16, Value)> {
        (0..)
            .zip(self.scalars.iter().zip(&self.texts).zip(&self.files))
            .filter_map(|(index, ((scalar, text), file))| {
                let text = || text.clone().map(Value::Text);
                let file = || file.map(Value::FileLength);
                scalar.map(to_wire).or_else(text).or_else(file).map(|value| (index, value))
            })
            .collect()
    }
}

/// A failure because of an argument.
pub fn bad(parameter: i64, text: impl Into<String>) -> Failure {
    Failure::new(Code::BadArguments, parameter, text)
}

/// A failure because of the size.
pub fn too_large(bytes: u64, most: u64) -> Failure {
    let text = format!("the call needs more memory than a call may have ({most} bytes)");
    Failure::new(Code::TooLarge, i64::try_from(bytes).unwrap_or(i64::MAX), text)
}

/// The plan of a call. Checks that texts fit their places.
pub fn plan(interface: &Interface, given: &GivenValues, most: u64) -> Result<Plan, Failure> {
    let limits = Limits { bytes: most };
    let plan = interface.plan_with_texts(&given.scalars, &given.texts, &limits);
    let plan = plan.map_err(|error| match error {
        PlanError::TooLarge { .. } => {
            Failure::new(Code::TooLarge, i64::try_from(most).unwrap_or(i64::MAX), error.to_string())
        }
        other => bad(-1, other.to_string()),
    })?;
    for (index, (argument, text)) in (0..).zip(plan.arguments.iter().zip(&given.texts)) {
        if let (ArgumentForm::Text { capacity: Some(room) }, Some(text)) = (argument.form, text)
            && text.len() as u64 >= room
        {
            let (name, bytes) = (&interface.params[index as usize].name, text.len());
            let text = format!("`{name}` has room for a text of {} bytes, not {bytes}", room - 1);
            return Err(bad(index, text));
        }
    }
    Ok(plan)
}
