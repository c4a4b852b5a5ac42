//! Descriptions and arguments by chance, the same ones every time.

use kumi_idl::{
    Binary, Dimension, Element, Expr, Function, Interface, Language, Mode, Order, Param, Scalar,
    Target, Type, Unary,
};

/// Numbers that look random (splitmix64).
pub struct RandomNumbers(pub u64);

impl RandomNumbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).expect("few")].clone()
    }

    fn expr(&mut self, scalars: u32, depth: u32) -> Expr {
        if depth == 0 || self.below(3) == 0 {
            return match self.below(24) {
                0 => Expr::Int(self.one_of(&[i64::MAX, i64::MIN, -7, 1 << 40])),
                1..=9 => Expr::Int(i64::try_from(self.below(5)).expect("small")),
                _ => Expr::Param(u32::try_from(self.below(scalars.into())).expect("few")),
            };
        }
        let below = depth - 1;
        match self.below(10) {
            0 => {
                let operation = self.one_of(&[Unary::Neg, Unary::Not]);
                Expr::Unary(operation, Box::new(self.expr(scalars, below)))
            }
            1 => {
                let mut part = || Box::new(self.expr(scalars, below));
                Expr::If(part(), part(), part())
            }
            2 => {
                let function = self.one_of(&[Function::Min, Function::Max, Function::Abs]);
                let count = if function == Function::Abs { 1 } else { 2 + self.below(2) };
                Expr::Call(function, (0..count).map(|_| self.expr(scalars, below)).collect())
            }
            _ => {
                let operation = self.operation();
                let (left, right) = (self.expr(scalars, below), self.expr(scalars, below));
                Expr::Binary(operation, Box::new(left), Box::new(right))
            }
        }
    }

    fn operation(&mut self) -> Binary {
        use Binary::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Mul, Ne, Or, Pow, Rem, Sub};
        self.one_of(&[
            Add, Add, Add, Mul, Mul, Mul, Sub, Div, Rem, Pow, Lt, Le, Gt, Ge, Eq, Ne, And, Or,
        ])
    }

    fn dimension(&mut self, scalars: u32) -> Dimension {
        let plain = |chance: &mut RandomNumbers| {
            Expr::Param(u32::try_from(chance.below(scalars.into())).expect("few"))
        };
        let size = if self.below(2) == 0 { plain(self) } else { self.expr(scalars, 3) };
        let mut part =
            |one_in: u64, depth| (self.below(one_in) == 0).then(|| self.expr(scalars, depth));
        let (start, end, step) = (part(8, 0), part(8, 1), part(9, 0));
        Dimension { size, start, end, step }
    }

    fn param(&mut self, name: String, scalars: u32) -> Param {
        let mode = self.one_of(&[Mode::In, Mode::InOut, Mode::Out, Mode::Out, Mode::Work]);
        let element = self.one_of(&Element::ALL);
        let count = self.below(4);
        Param {
            name,
            mode,
            ty: Type::Number(element),
            dims: (0..count).map(|_| self.dimension(scalars)).collect(),
            order: self.one_of(&[Order::Row, Order::Column]),
            default: None,
            doc: String::new(),
        }
    }

    /// A routine of two to four integers, some with defaults, a text, and up to four other parameters.
    pub fn interface(&mut self, name: &str) -> Interface {
        let scalars = 2 + u32::try_from(self.below(3)).expect("few");
        let mut params = Vec::new();
        for index in 0..scalars {
            let element = self.one_of(&[Element::I32, Element::I64, Element::U64, Element::I8]);
            let default = (self.below(3) == 0).then(|| self.expr(scalars, 2));
            let ty = Type::Number(element);
            let param = self.param(format!("n{index}"), scalars);
            params.push(Param { mode: Mode::In, ty, dims: Vec::new(), default, ..param });
        }
        for index in 0..1 + self.below(4) {
            let param = self.param(format!("a{index}"), scalars);
            params.push(param);
        }
        Interface {
            version: Interface::VERSION,
            name: name.to_owned(),
            class: String::new(),
            doc: String::new(),
            params,
            calc_order: (self.below(2) == 0).then(|| self.expr(scalars, 2)),
            idempotent: false,
            split: None,
            status: None,
            parallel: None,
            target: Target {
                language: Language::C,
                symbol: "f".to_owned(),
                arguments: Vec::new(),
                result: None,
                required: Vec::new(),
                body: String::new(),
                format: String::new(),
            },
        }
    }

    /// A value for a scalar that is sent.
    pub fn scalar(&mut self, element: Element) -> Scalar {
        match (element, self.below(30)) {
            (_, 0) => self.one_of(&[
                Scalar::I64(-1),
                Scalar::I64(i64::MAX),
                Scalar::I64(i64::MIN),
                Scalar::U64(u64::MAX),
                Scalar::I64(128),
                Scalar::F64(1.5),
                Scalar::F64(1e39),
                Scalar::Complex(1.0, -2.5),
            ]),
            (Element::F32 | Element::F64, _) => Scalar::F64(0.25 * self.below(9) as f64),
            (Element::C64 | Element::C128, _) => Scalar::Complex(0.5, self.below(9) as f64),
            (_, 1 | 2) => Scalar::U64(self.below(7)),
            _ => Scalar::I64(i64::try_from(self.below(9)).expect("small")),
        }
    }
}
