//! Numbers for names.

use std::collections::HashMap;

/// Most names of a kind; all others share one number.
const MOST: usize = 65_536;

/// Names with their numbers, which the broker uses.
#[derive(Debug)]
pub struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Default for Names {
    fn default() -> Names {
        // Whoever is one too many is this, which is no name that anybody can have.
        let others = "(others)".to_owned();
        Names { numbers: HashMap::from([(others.clone(), 0)]), names: vec![others] }
    }
}

impl Names {
    /// The number of a name.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() >= MOST {
            return 0;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(0);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}
