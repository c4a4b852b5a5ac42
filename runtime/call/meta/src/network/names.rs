//! Table of numbers for names of sites and users.

use std::collections::{BTreeSet, HashMap};

/// Most names of a table; all others share one number.
const MOST: usize = 65_536;
/// Fraction of the names that is forgotten at once, at least one. So the search for unused names is rare.
const PART: usize = 8;

/// A name with its number.
#[derive(Debug)]
struct NamedNumber {
    name: String,
    /// When it was last asked for, counted in requests.
    asked: u64,
}

/// Numbers for names, as the broker uses them.
#[derive(Debug)]
pub struct NameTable {
    most: usize,
    numbers: HashMap<String, u32>,
    names: Vec<NamedNumber>,
    /// Numbers of forgotten names, to be reused.
    free: Vec<u32>,
    questions: u64,
    /// New names until the next search for unused ones.
    patience: usize,
}

impl Default for NameTable {
    fn default() -> NameTable {
        NameTable::with_most(MOST)
    }
}

impl NameTable {
    /// A table of this many names.
    pub fn with_most(most: usize) -> NameTable {
        // All names beyond the limit share this entry, which nobody can have as a name.
        let others = "(others)".to_owned();
        NameTable {
            most,
            numbers: HashMap::from([(others.clone(), 0)]),
            names: vec![NamedNumber { name: others, asked: 0 }],
            free: Vec::new(),
            questions: 0,
            patience: 0,
        }
    }

    /// The number of a name.
    pub fn number(&mut self, name: &str) -> u32 {
        self.questions += 1;
        let asked = self.questions;
        if let Some(number) = self.numbers.get(name) {
            self.names[*number as usize].asked = asked;
            return *number;
        }
        let named = NamedNumber { name: name.to_owned(), asked };
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = named;
                number
            }
            None if self.names.len() < self.most => {
                self.names.push(named);
                u32::try_from(self.names.len() - 1).unwrap_or(0)
            }
            None => return 0,
        };
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The number of a name. If the table is full, it forgets the oldest names that are not in `used`, which
    /// it asks for once for many names.
    pub fn number_or_forget(&mut self, name: &str, used: impl FnOnce() -> BTreeSet<u32>) -> u32 {
        let full = self.free.is_empty() && self.names.len() >= self.most;
        if full && !self.numbers.contains_key(name) {
            match self.patience.checked_sub(1) {
                Some(left) => self.patience = left,
                None => self.forget(&used()),
            }
        }
        self.number(name)
    }

    fn forget(&mut self, used: &BTreeSet<u32>) {
        let part = (self.most / PART).max(1);
        let mut idle: Vec<(u64, u32)> = (0..)
            .zip(&self.names)
            .skip(1)
            .filter(|(number, _)| !used.contains(number))
            .map(|(number, named)| (named.asked, number))
            .collect();
        idle.sort_unstable();
        idle.truncate(part);
        for (_, number) in &idle {
            let name = std::mem::take(&mut self.names[*number as usize].name);
            self.numbers.remove(&name);
        }
        // If little could be forgotten, nearly all names are in use. Then a search for each new name is not
        // worth its cost.
        self.patience = part - idle.len();
        self.free.extend(idle.into_iter().rev().map(|(_, number)| number));
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |named| named.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nobody_uses_is_forgotten() {
        let mut names = NameTable::with_most(4);
        let none = BTreeSet::new;
        let [a, b, c] = ["a", "b", "c"].map(|name| names.number_or_forget(name, none));
        assert_eq!([a, b, c], [1, 2, 3]);
        assert_eq!(names.number("d"), 0, "there is no room, and nothing is forgotten");
        // The oldest is in use, the next was asked for a moment ago.
        assert_eq!(names.number_or_forget("b", none), b);
        assert_eq!(names.number_or_forget("d", || BTreeSet::from([a])), c);
        assert_eq!((names.name(c), names.name(a), names.name(b)), ("d", "a", "b"));
        assert_eq!(names.number_or_forget("d", || panic!("it is known")), c);
        assert_eq!(names.number_or_forget("e", || BTreeSet::from([b, c])), a);
        assert_eq!((names.name(0), names.name(9)), ("(others)", ""));
    }

    #[test]
    fn what_is_in_use_is_looked_for_seldom() {
        let mut names = NameTable::with_most(65);
        let all: BTreeSet<u32> = (1..65).map(|it| names.number(&it.to_string())).collect();
        assert_eq!(all, (1..65).collect());
        let mut looks = 0;
        let mut name = 100..;
        let mut next = |names: &mut NameTable, used: &BTreeSet<u32>| {
            let name = name.next().expect("they do not end").to_string();
            names.number_or_forget(&name, || {
                looks += 1;
                used.clone()
            })
        };
        // All are in use, so only one new name in nine starts a search.
        (0..18).for_each(|_| assert_eq!(next(&mut names, &all), 0));
        let used: BTreeSet<u32> = (11..65).collect();
        // Of the ten unused names, the eight oldest are forgotten at once.
        let numbers: Vec<u32> = (0..8).map(|_| next(&mut names, &used)).collect();
        assert_eq!(numbers, (1..9).collect::<Vec<u32>>());
        assert_eq!(looks, 3);
    }
}
