//! The model of descriptions. Its JSON is canonical: the same description gives the same bytes, and the `serde` names are part of
//! the protocol.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::parallel::Parallel;

/// The description of a routine: name, parameters, cost, and target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Version of this form; [`Interface::VERSION`].
    pub version: u32,
    /// The routine's name, unique on a server; `module/name` where a module is given.
    pub name: String,
    /// The class of a method; empty: none. A method's name is `class.method`; the routine that creates objects has the name of
    /// the class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Documentation for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
    /// The parameters in the order of a call.
    pub params: Vec<Param>,
    /// Number of operations of a call, an expression of scalar parameters (`CalcOrder`); `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calc_order: Option<Expr>,
    /// Two runs have the effect of one (`@idempotent`), so a call is retried when its server is lost.
    #[serde(default)]
    pub idempotent: bool,
    /// Index of the integer parameter by which a call may be split into several (`@split(count)`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<u32>,
    /// Index of the integer output whose nonzero value is a failure (`@status(info)`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// The job that runs a call (`Parallel`); `None`: one process runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// The code that the server runs.
    pub target: Target,
}

impl Interface {
    /// The version of the JSON form that this code writes and reads.
    pub const VERSION: u32 = 1;
    /// Most parameters of a routine.
    pub const MOST_PARAMS: usize = 256;
    /// Most dimensions of an array.
    pub const MOST_DIMENSIONS: usize = 15;

    /// A routine of which nothing is said but its name, its parameters and its code.
    #[must_use]
    pub fn new(name: String, params: Vec<Param>, target: Target) -> Interface {
        Interface {
            version: Interface::VERSION,
            name,
            class: String::new(),
            doc: String::new(),
            params,
            calc_order: None,
            idempotent: false,
            split: None,
            status: None,
            parallel: None,
            target,
        }
    }

    /// The constructor of a class with methods in this language: a routine with the class' name and no parameters, which is
    /// never called.
    #[must_use]
    pub fn constructor(class: &str, language: Language) -> Interface {
        let symbol = class.rsplit(['/', '.']).next().unwrap_or(class).into();
        let target = Target { language, symbol, ..Target::default() };
        // An object that was not made may be made elsewhere.
        let idempotent = true;
        Interface {
            class: class.into(),
            idempotent,
            ..Interface::new(class.into(), Vec::new(), target)
        }
    }

    /// Whether it is the constructor of a class.
    #[must_use]
    pub fn is_constructor(&self) -> bool {
        !self.class.is_empty() && self.name == self.class
    }

    /// Its name without the class.
    #[must_use]
    pub fn method(&self) -> &str {
        let own = self.name.strip_prefix(self.class.as_str()).and_then(|it| it.strip_prefix('.'));
        own.unwrap_or(&self.name)
    }
}

/// The contents of a file of descriptions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// Version of this form; [`Interface::VERSION`].
    pub version: u32,
    /// Name of the module (`Module`), the prefix of its routines' names; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// C code before all bodies (`Globals`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globals: Vec<String>,
    /// Libraries and options to link every routine with (`Library`); they are in each routine's `required` too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// Compiler of the generated code (`Compiler`); empty: the generator's choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// Options of the compiler (`CompileOptions`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compile_options: Vec<String>,
    /// Linker (`Linker`); empty: the compiler.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub linker: String,
    /// Format of Fortran symbols (`FortranFormat`); each routine's target has it too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fortran_format: String,
    /// The routines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Classes: routines with a common state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
}

/// A class: routines on a state that the server keeps from call to call (`DefClass`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name, `module/name` where a module is given.
    pub name: String,
    /// What users read about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
    /// The state: declarations in C (`DefState`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Object files and libraries of all methods; each method's `required` has them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Its methods, named `class.method`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Interface>,
}

/// The code of a routine at its server (`Calls`, `Required`, `Library`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Calling convention.
    pub language: Language,
    /// The symbol as in the source; for Fortran without the compiler's underscore.
    pub symbol: String,
    /// The arguments of the symbol in their order: parameters, or expressions of them.
    pub arguments: Vec<Expr>,
    /// The parameter that gets the return value of the symbol; `None`: it returns nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u32>,
    /// Object files and libraries to link (`Required`, `Library`), in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// The C statements of a function that the generator writes for this symbol, with the parameters as arguments; empty: the
    /// symbol is in a required file or library.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The linker's name of a Fortran symbol (`FortranFormat`): `%s` stands for the symbol, `%l` for the symbol in small letters;
    /// empty: `%l_`, as for most compilers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
}

impl Target {
    /// The linker's name of the symbol.
    #[must_use]
    pub fn linked(&self) -> String {
        if self.language != Language::Fortran {
            return self.symbol.clone();
        }
        let format = if self.format.is_empty() { "%l_" } else { self.format.as_str() };
        format.replace("%s", &self.symbol).replace("%l", &self.symbol.to_ascii_lowercase())
    }
}

/// A calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Scalars by value, arrays and outputs by address.
    #[default]
    C,
    /// Everything by address, lengths of strings after the arguments.
    Fortran,
    /// A Python function.
    Python,
}

/// A parameter of a routine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Its name, unique in the routine.
    pub name: String,
    /// The direction of transfer.
    pub mode: Mode,
    /// Its type, or the type of its elements.
    #[serde(rename = "type")]
    pub ty: Type,
    /// The array's dimensions in the order of the description; none: a scalar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<Dimension>,
    /// The memory order that the routine expects.
    #[serde(default, skip_serializing_if = "Order::is_row")]
    pub order: Order,
    /// The value of a scalar that the caller leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Expr>,
    /// What users read about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
}

impl Param {
    /// The element type of a scalar number, which sizes may name; `None`: it is none.
    #[must_use]
    pub fn scalar(&self) -> Option<Element> {
        match self.ty {
            Type::Number(element) if self.dims.is_empty() => Some(element),
            _ => None,
        }
    }

    /// Whether it is an array of numbers, which is sent in chunks.
    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(self.ty, Type::Number(_)) && !self.dims.is_empty()
    }
}

impl Param {
    /// Its type in expressions: that of [`Param::scalar`]; for a text that of its first character as a number
    /// ([`crate::letter`]).
    #[must_use]
    pub fn operand(&self) -> Option<Element> {
        if self.ty == Type::String { Some(Element::U8) } else { self.scalar() }
    }
}

/// The direction in which a parameter is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Input: to the server.
    In,
    /// Output: to the client.
    Out,
    /// Input and output.
    InOut,
    /// Work memory of the routine; never sent.
    Work,
}

impl Mode {
    /// Whether it is sent to the server.
    #[must_use]
    pub fn is_sent(self) -> bool {
        matches!(self, Mode::In | Mode::InOut)
    }

    /// Whether it is sent back.
    #[must_use]
    pub fn is_returned(self) -> bool {
        matches!(self, Mode::Out | Mode::InOut)
    }
}

/// The type of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// A number, or an array of them.
    Number(Element),
    /// Bytes of text; in C they end with a zero.
    String,
    /// A file: its contents are sent, and the routine gets a path.
    File,
    /// A function of the client that the routine may call, with its parameters.
    Callback(Vec<Param>),
}

/// The type of a scalar or an array's element. On the wire it is little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed.
    I32,
    /// 64 bits, signed.
    I64,
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Two single-precision numbers.
    C64,
    /// Two double-precision numbers.
    C128,
}

/// The types in their order, each with how descriptions and C spell it, and its bytes.
const ELEMENTS: [(Element, &str, &str, u64); 12] = [
    (Element::I8, "int8", "int8_t", 1),
    (Element::I16, "int16", "int16_t", 2),
    (Element::I32, "int", "int32_t", 4),
    (Element::I64, "int64", "int64_t", 8),
    (Element::U8, "uint8", "uint8_t", 1),
    (Element::U16, "uint16", "uint16_t", 2),
    (Element::U32, "uint32", "uint32_t", 4),
    (Element::U64, "uint64", "uint64_t", 8),
    (Element::F32, "float", "float", 4),
    (Element::F64, "double", "double", 8),
    (Element::C64, "scomplex", "float _Complex", 8),
    (Element::C128, "dcomplex", "double _Complex", 16),
];

impl Element {
    /// All of them.
    pub const ALL: [Element; ELEMENTS.len()] = {
        let mut all = [Element::I8; ELEMENTS.len()];
        let mut at = 0;
        while at < all.len() {
            assert!(ELEMENTS[at].0 as usize == at, "they are in the order of the variants");
            all[at] = ELEMENTS[at].0;
            at += 1;
        }
        all
    };

    /// Size in bytes.
    #[must_use]
    pub fn size(self) -> u64 {
        ELEMENTS[self as usize].3
    }

    /// How descriptions spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        ELEMENTS[self as usize].1
    }

    /// How C spells it.
    #[must_use]
    pub fn c_name(self) -> &'static str {
        ELEMENTS[self as usize].2
    }

    /// Whether sizes may use it.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Element::F32 | Element::F64 | Element::C64 | Element::C128)
    }
}

impl core::fmt::Display for Element {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// A dimension of an array: `[size]` or `[size: start, end, step]`. The routine's array has `size` elements. Only those from
/// `start` up to but not including `end` are sent, in steps of `step`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// Number of elements.
    pub size: Expr,
    /// The first element that is sent; `None`: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Expr>,
    /// The end of the elements that are sent; `None`: the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Expr>,
    /// The step between elements; `None`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Expr>,
}

/// The memory order of an array of several dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Row order: the last index varies fastest (C).
    #[default]
    Row,
    /// Column order: the first index varies fastest (Fortran).
    Column,
}

impl Order {
    fn is_row(&self) -> bool {
        *self == Order::Row
    }
}

/// An expression of scalar parameters. Sizes use 64-bit integers, and every overflow is an error. `calc_order` uses floating
/// point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expr {
    /// An integer.
    Int(i64),
    /// A number; only in `calc_order` and defaults.
    Real(f64),
    /// A text; only in defaults.
    Text(String),
    /// The parameter of this index.
    Param(u32),
    /// An operation on one operand.
    Unary(Unary, Box<Expr>),
    /// An operation on two operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `condition ? then : otherwise`.
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A function with its arguments.
    Call(Function, Vec<Expr>),
}

/// An operation on one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unary {
    /// `-`
    Neg,
    /// `!`: 1 for 0, otherwise 0.
    Not,
}

/// An operation on two operands. Comparisons give 1 or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binary {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, towards zero.
    Div,
    /// `%`, with the sign of the dividend.
    Rem,
    /// `^`
    Pow,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `&&`
    And,
    /// `||`
    Or,
}

/// A function in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// The minimum of two or more.
    Min,
    /// The maximum of two or more.
    Max,
    /// The absolute value.
    Abs,
    /// Natural logarithm; only in `calc_order`.
    Log,
    /// Logarithm to base 2; only in `calc_order`.
    Log2,
    /// Square root; only in `calc_order`.
    Sqrt,
}
