//! Dense matrices and sorted halves, for the program `dense`.

/// A matrix, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    columns: usize,
    numbers: Vec<f64>,
}

impl Matrix {
    /// Zeros.
    #[must_use]
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { columns, numbers: vec![0.0; rows * columns] }
    }

    /// Rows of `columns` numbers each; a rest that is no whole row is left out.
    #[must_use]
    pub fn from_numbers(columns: usize, mut numbers: Vec<f64>) -> Self {
        numbers.truncate(numbers.len() / columns.max(1) * columns);
        Self { columns, numbers }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.numbers.len() / self.columns.max(1)
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..(row + 1) * self.columns]
    }

    /// A row, to be changed.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.numbers[row * self.columns..(row + 1) * self.columns]
    }
}

/// c += a b.
///
/// # Panics
/// If the sizes do not fit.
pub fn multiply_add(c: &mut Matrix, a: &Matrix, b: &Matrix) {
    assert_eq!((c.rows(), c.columns, a.columns), (a.rows(), b.columns, b.rows()), "sizes");
    for i in 0..a.rows() {
        for (k, factor) in a.row(i).iter().enumerate() {
            let from = &b.numbers[k * b.columns..(k + 1) * b.columns];
            for (sum, number) in c.row_mut(i).iter_mut().zip(from) {
                *sum += factor * number;
            }
        }
    }
}

/// One row of Gaussian elimination: the pivot row times a factor is taken off, the factor stays in
/// the place that becomes zero.
pub fn eliminate(row: &mut [f64], pivot: &[f64], step: usize) {
    let factor = row[step] / pivot[step];
    row[step] = factor;
    for (number, other) in row[step + 1..].iter_mut().zip(&pivot[step + 1..]) {
        *number -= factor * other;
    }
}

/// Of two sorted lists of the same length keeps the lower or the upper half in the first, sorted.
pub fn merge_halves(mine: &mut [f64], theirs: &[f64], lower: bool) {
    let mut merged = Vec::with_capacity(mine.len());
    if lower {
        let (mut a, mut b) = (mine.iter().peekable(), theirs.iter().peekable());
        while merged.len() < mine.len() {
            let first = a.peek().is_some_and(|x| b.peek().is_none_or(|y| *x <= *y));
            merged.extend(if first { a.next() } else { b.next() });
        }
    } else {
        let (mut a, mut b) = (mine.iter().rev().peekable(), theirs.iter().rev().peekable());
        while merged.len() < mine.len() {
            let first = a.peek().is_some_and(|x| b.peek().is_none_or(|y| *x >= *y));
            merged.extend(if first { a.next() } else { b.next() });
        }
        merged.reverse();
    }
    mine.copy_from_slice(&merged);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_small_matrices() {
        let a = Matrix::from_numbers(2, vec![1.0, 2.0, 3.0, 4.0]);
        let b = Matrix::from_numbers(2, vec![5.0, 6.0, 7.0, 8.0]);
        let mut c = Matrix::from_numbers(2, vec![1.0; 4]);
        multiply_add(&mut c, &a, &b);
        assert_eq!(c, Matrix::from_numbers(2, vec![20.0, 23.0, 44.0, 51.0]));
    }

    #[test]
    fn elimination_leaves_the_factor() {
        let mut row = [4.0, 7.0];
        eliminate(&mut row, &[2.0, 3.0], 0);
        assert_eq!(row, [2.0, 1.0]);
    }

    #[test]
    fn halves_of_two_sorted_lists() {
        let (low, high) = ([1.0, 4.0, 6.0], [2.0, 3.0, 9.0]);
        let half = |lower| {
            let mut mine = low;
            merge_halves(&mut mine, &high, lower);
            mine
        };
        assert_eq!((half(true), half(false)), ([1.0, 2.0, 3.0], [4.0, 6.0, 9.0]));
    }
}
