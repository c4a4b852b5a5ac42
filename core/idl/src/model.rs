//! What a description says, as clients and servers hold it. Its JSON is canonical: the same description gives
//! the same bytes, and `serde` names are part of the protocol.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::parallel::Parallel;

/// A routine: what it is called by, what it takes and gives, what it costs, and what runs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Version of this form; [`Interface::VERSION`].
    pub version: u32,
    /// The routine's name, unique on a server; `module/name` where a module is given.
    pub name: String,
    /// The class of which it is a method, called on objects of that: its name is `class.method`, or that of the class if it
    /// makes those; empty: of none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// What users read about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
    /// The parameters in the order of a call.
    pub params: Vec<Param>,
    /// Operations of a call, an expression of scalar parameters (`CalcOrder`); `None`: not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calc_order: Option<Expr>,
    /// A call may be run twice with the effect of one (`@idempotent`): it is retried when a server is lost.
    #[serde(default)]
    pub idempotent: bool,
    /// The integer parameter by which a call may be cut into several (`@split(count)`): its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<u32>,
    /// The integer output that is an error when it is not zero (`@status(info)`): its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// A call is a job of a cluster (`Parallel`); `None`: one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// What the server runs.
    pub target: Target,
}

impl Interface {
    /// The version of the JSON form that this code writes and reads.
    pub const VERSION: u32 = 1;
    /// Most parameters of a routine.
    pub const MOST_PARAMS: usize = 256;
    /// Most dimensions of an array.
    pub const MOST_DIMENSIONS: usize = 15;

    /// What makes objects of a class whose methods are in this language: a routine of the class' name that takes nothing, and is
    /// never called.
    #[must_use]
    pub fn constructor(class: &str, language: Language) -> Interface {
        let symbol = class.rsplit(['/', '.']).next().unwrap_or(class).into();
        Interface {
            version: Interface::VERSION,
            name: class.into(),
            class: class.into(),
            doc: String::new(),
            params: Vec::new(),
            calc_order: None,
            // An object that was not made may be made elsewhere.
            idempotent: true,
            split: None,
            status: None,
            parallel: None,
            target: Target {
                language,
                symbol,
                arguments: Vec::new(),
                result: None,
                required: Vec::new(),
                body: String::new(),
                format: String::new(),
            },
        }
    }

    /// Whether it is not a routine but stands for a class, of which it makes objects.
    #[must_use]
    pub fn is_constructor(&self) -> bool {
        !self.class.is_empty() && self.name == self.class
    }

    /// Its name among the methods of its class; of what is no method, its name.
    #[must_use]
    pub fn method(&self) -> &str {
        let own = self.name.strip_prefix(self.class.as_str()).and_then(|it| it.strip_prefix('.'));
        own.unwrap_or(&self.name)
    }
}

/// What a file of descriptions holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// Version of this form; [`Interface::VERSION`].
    pub version: u32,
    /// Its name (`Module`), which stands before those of its routines; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// C code before all bodies (`Globals`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globals: Vec<String>,
    /// Libraries and options to link every routine with (`Library`); they are in each routine's `required` too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// What compiles the generated code (`Compiler`); empty: the generator's own choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// Options for that (`CompileOptions`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compile_options: Vec<String>,
    /// What links (`Linker`); empty: the compiler.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub linker: String,
    /// How the linker knows Fortran's symbols (`FortranFormat`); it is in each routine's target too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fortran_format: String,
    /// The routines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Routines with a state in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
}

/// Routines that work on one state, which lives on the server from call to call (`DefClass`).
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
    /// Object files and libraries of all its methods; they are in each method's `required` too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Its methods; each is called `class.method`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Interface>,
}

/// What runs a routine on its server (`Calls`, `Required`, `Library`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Calling convention.
    pub language: Language,
    /// The symbol as the source spells it; for Fortran without the compiler's underscore.
    pub symbol: String,
    /// The arguments in the order of the symbol: expressions of parameters, mostly parameters themselves.
    pub arguments: Vec<Expr>,
    /// Whether the symbol returns a value, and into which parameter it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u32>,
    /// Object files and libraries to link (`Required`, `Library`), in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// The statements of a function of this symbol that the generator writes, in C, with the parameters as arguments; empty:
    /// the symbol is in what is required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// How the linker knows the symbol of a Fortran routine: a text in which `%s` stands for the symbol and `%l` for the
    /// symbol in small letters (`FortranFormat`); empty: `%l_`, as most compilers have it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
}

impl Target {
    /// The symbol as the linker knows it.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Scalars by value, arrays and outputs by address.
    C,
    /// Everything by address, lengths of strings behind the arguments.
    Fortran,
    /// A function of a Python server.
    Python,
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Its name, unique in the routine.
    pub name: String,
    /// Which way it goes.
    pub mode: Mode,
    /// What it is, or what its elements are.
    #[serde(rename = "type")]
    pub ty: Type,
    /// The array's dimensions in the order of the description; none: a scalar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<Dimension>,
    /// How the routine wants the array laid out.
    #[serde(default, skip_serializing_if = "Order::is_row")]
    pub order: Order,
    /// What stands for a scalar that a caller leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Expr>,
    /// What users read about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
}

impl Param {
    /// What it holds when it is a single number: then sizes may name it.
    #[must_use]
    pub fn scalar(&self) -> Option<Element> {
        match self.ty {
            Type::Number(element) if self.dims.is_empty() => Some(element),
            _ => None,
        }
    }

    /// Whether it is an array of numbers: then its bytes travel by themselves.
    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(self.ty, Type::Number(_)) && !self.dims.is_empty()
    }
}

impl Param {
    /// What expressions take it for: what [`Param::scalar`] says, and of a text its first character in capitals, as a
    /// number ([`crate::letter`]).
    #[must_use]
    pub fn operand(&self) -> Option<Element> {
        if self.ty == Type::String { Some(Element::U8) } else { self.scalar() }
    }
}

/// Which way a parameter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// To the server.
    In,
    /// Back.
    Out,
    /// There and back.
    InOut,
    /// Memory the routine needs; never sent.
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

/// What a parameter is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// A number, or an array of them.
    Number(Element),
    /// Bytes of text; in C they end with a zero.
    String,
    /// A file: its contents travel, the routine gets a name.
    File,
    /// A function of the client that the routine may call, and what it takes.
    Callback(Vec<Param>),
}

/// An element of an array, or a scalar. Little-endian wherever it is in flight.
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

impl Element {
    /// Bytes of one.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 | Element::C64 => 8,
            Element::C128 => 16,
        }
    }

    /// All of them.
    pub const ALL: [Element; 12] = [
        Element::I8,
        Element::I16,
        Element::I32,
        Element::I64,
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::F32,
        Element::F64,
        Element::C64,
        Element::C128,
    ];

    /// How descriptions spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Element::I8 => "int8",
            Element::I16 => "int16",
            Element::I32 => "int",
            Element::I64 => "int64",
            Element::U8 => "uint8",
            Element::U16 => "uint16",
            Element::U32 => "uint32",
            Element::U64 => "uint64",
            Element::F32 => "float",
            Element::F64 => "double",
            Element::C64 => "scomplex",
            Element::C128 => "dcomplex",
        }
    }

    /// Whether it may stand in a size.
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

/// One dimension of an array: `[size]` or `[size: start, end, step]`. Elements from `start` up to and without
/// `end`, `step` apart, travel; the array has `size` of them at the routine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// Elements along it.
    pub size: Expr,
    /// The first that travels; `None`: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Expr>,
    /// Behind the last that travels; `None`: the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Expr>,
    /// From one to the next; `None`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Expr>,
}

/// How an array of several dimensions lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The last index moves fastest (C).
    #[default]
    Row,
    /// The first index moves fastest (Fortran).
    Column,
}

impl Order {
    fn is_row(&self) -> bool {
        *self == Order::Row
    }
}

/// An expression of scalar parameters. Sizes are computed in 64-bit integers, every overflow is an error;
/// `calc_order` in floating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expr {
    /// An integer.
    Int(i64),
    /// A number; in `calc_order` and defaults only.
    Real(f64),
    /// A text; in defaults only.
    Text(String),
    /// The parameter of this index.
    Param(u32),
    /// One operand.
    Unary(Unary, Box<Expr>),
    /// Two operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `condition ? then : otherwise`.
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A function of this page.
    Call(Function, Vec<Expr>),
}

/// An operation on one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unary {
    /// `-`
    Neg,
    /// `!`: 1 of 0, else 0.
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
    /// `%`, the sign of the dividend.
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
    /// The least of two or more.
    Min,
    /// The greatest of two or more.
    Max,
    /// Without its sign.
    Abs,
    /// Natural logarithm; in `calc_order` only.
    Log,
    /// Logarithm to base 2; in `calc_order` only.
    Log2,
    /// Square root; in `calc_order` only.
    Sqrt,
}
