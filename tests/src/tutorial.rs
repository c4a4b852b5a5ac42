//! A tutorial of the documentation: its blocks, and whether what was printed is what the page says.
//!
//! Blocks are what stands between lines of three backquotes; the word behind the first says what they are:
//!
//! - `sh`: commands, all of a page in one shell, which ends at the first that fails;
//! - `c`, `python`: a file, whose name stands in a comment in the first line;
//! - `text`: what the commands before it print, both streams together; without such a block they print nothing.
//!
//! Blanks at a line's end and their number within it do not count. A line `...` stands for any lines, `...` at
//! the end of a line for any text. Behind `text` may stand `any-order` (lines come in any order) and `measured`:
//! numbers with a decimal point, and what stands in a table below TIME, CPUS, ADDRESS and USER, may differ.

/// A block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Commands, the number of the line in which they begin, and what they print.
    Commands {
        /// The commands.
        text: String,
        /// Where they begin.
        line: usize,
        /// What the page says of their output.
        printed: Printed,
    },
    /// A file to be written.
    File {
        /// Its name.
        name: String,
        /// What it contains.
        text: String,
    },
}

/// What the page says of the output of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    text: String,
    any_order: bool,
    measured: bool,
}

/// The columns of tables whose values differ from machine to machine.
const COLUMNS: [&str; 4] = ["TIME", "CPUS", "ADDRESS", "USER"];

/// The blocks of a page in their order. Sections that contain `without` are left out.
///
/// # Panics
/// When a block is of no known kind, a file has no name, or an output has no commands.
pub fn blocks(page: &str, without: Option<&str>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut line = 1;
    for section in page.split_inclusive("\n## ") {
        if without.is_none_or(|word| !section.contains(word)) {
            blocks_of_section(section, line, &mut blocks);
        }
        line += section.matches('\n').count();
    }
    blocks
}

fn blocks_of_section(section: &str, first: usize, blocks: &mut Vec<Block>) {
    let mut lines = section.lines().enumerate();
    while let Some((number, opening)) = lines.next() {
        let Some(kind) = opening.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```").collect();
        let text: String = body.iter().map(|text| format!("{text}\n")).collect();
        match kind {
            "sh" => {
                let line = first + number + 1;
                blocks.push(Block::Commands { text, line, printed: Printed::default() });
            }
            "c" | "python" => blocks.push(Block::File { name: file_name(body[0]), text }),
            _ => {
                let mut words = kind.split(',');
                assert_eq!(words.next(), Some("text"), "a block of unknown kind: {opening}");
                let Some(Block::Commands { printed, .. }) = blocks.last_mut() else {
                    panic!("output without commands: {text}")
                };
                printed.text = text;
                for word in words {
                    match word {
                        "any-order" => printed.any_order = true,
                        "measured" => printed.measured = true,
                        _ => panic!("no such way to compare: {opening}"),
                    }
                }
            }
        }
    }
}

/// The name in the comment that a file begins with: `/* ring.c */`, `// ring.idl`, `# ring.py`.
fn file_name(first: &str) -> String {
    let name = first.trim_matches(|character: char| "/*# ".contains(character));
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    assert!(plain && name.contains('.'), "the first line of a file is not its name: {first}");
    name.to_owned()
}

impl Printed {
    /// Whether `actual` is what the page says.
    pub fn fits(&self, actual: &str) -> bool {
        let expected: Vec<&str> = self.text.lines().collect();
        let mut actual: Vec<&str> = actual.lines().collect();
        if !self.any_order {
            return self.lines_fit(&expected, &actual);
        }
        // Each line that is expected takes one that was printed.
        expected.len() == actual.len()
            && expected.iter().all(|line| {
                let place = actual.iter().position(|other| self.line_fits(line, other));
                place.map(|place| actual.swap_remove(place)).is_some()
            })
    }

    fn lines_fit(&self, expected: &[&str], actual: &[&str]) -> bool {
        match (expected, actual) {
            ([], rest) => rest.is_empty(),
            (["...", others @ ..], rest) => {
                (0..=rest.len()).any(|skipped| self.lines_fit(others, &rest[skipped..]))
            }
            ([line, others @ ..], [other, rest @ ..]) => {
                self.line_fits(line, other) && self.lines_fit(others, rest)
            }
            (_, []) => false,
        }
    }

    fn line_fits(&self, expected: &str, actual: &str) -> bool {
        let open = expected.ends_with("...");
        let expected = expected.strip_suffix("...").unwrap_or(expected);
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let actual: Vec<&str> = actual.split_whitespace().collect();
        let headings = self.headings();
        let columns = headings.len();
        let same = |index: usize, word: &str, other: &str| {
            word == other
                || self.measured
                    && (measured(word) && measured(other)
                        || columns <= expected.len()
                            && headings.get(index).is_some_and(|name| COLUMNS.contains(name)))
        };
        let fit = expected.iter().zip(&actual).enumerate();
        let fit = fit.fold(true, |fit, (index, (word, other))| fit && same(index, word, other));
        fit && if open { expected.len() < actual.len() } else { expected.len() == actual.len() }
    }

    /// The headings of the block's table, a line of at least three words in capitals.
    fn headings(&self) -> Vec<&str> {
        let capitals = |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase());
        let mut lines = self.text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.len() >= 3 && words.iter().all(capitals)).unwrap_or_default()
    }
}

/// Whether a word is a number with a decimal point, with its unit.
fn measured(word: &str) -> bool {
    let number = word.trim_end_matches(|character: char| !character.is_ascii_digit());
    number.contains('.') && number.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, any_order: bool, measured: bool) -> Printed {
        Printed { text: text.to_owned(), any_order, measured }
    }

    #[test]
    fn blocks_have_their_kind_place_and_output() {
        let page = "# A\n```c\n/* a.c */\nint a;\n```\n\n## B\n```sh\nls\n```\n```text,any-order\na.c\n```\n## C\nno\n```sh\nid\n```\n";
        let found = blocks(page, Some("no\n"));
        let file = Block::File { name: "a.c".into(), text: "/* a.c */\nint a;\n".into() };
        let printed = printed("a.c\n", true, false);
        let commands = Block::Commands { text: "ls\n".into(), line: 9, printed };
        assert_eq!(found, [file, commands]);
        assert_eq!(blocks(page, None).len(), 3);
    }

    #[test]
    fn what_differs_does_not_fit() {
        let exact = printed("one  2.5\n", false, false);
        assert!(exact.fits("one 2.5 \n"));
        for wrong in ["", "one 2.6\n", "one\n", "one 2.5\ntwo\n", "one 2.5 3\n"] {
            assert!(!exact.fits(wrong), "{wrong}");
        }
        let order = printed("b\na\n", true, false);
        assert!(order.fits("a\nb\n") && !order.fits("a\na\n") && !order.fits("a\nb\nb\n"));
    }

    #[test]
    fn what_is_open_fits_anything_there_and_nothing_elsewhere() {
        let open = printed("first\n...\nlast: ...\n", false, false);
        assert!(open.fits("first\nlast: 1 2\n") && open.fits("first\nx\ny\nlast: z\n"));
        assert!(!open.fits("first\nx\n") && !open.fits("x\nfirst\nlast: z\n"));
        assert!(!open.fits("first\nlast:\n"));
    }

    #[test]
    fn measured_numbers_and_columns_differ_and_nothing_else() {
        let table = "for 0.1s\nJOB USER TIME\n5 ada 1.9s\n";
        let table = printed(table, false, true);
        assert!(table.fits("for 22.5s\nJOB USER TIME\n5 root 1m02s\n"));
        assert!(!table.fits("for 0.1s\nJOB USER TIME\n6 root 1.9s\n"));
        assert!(!table.fits("for x\nJOB USER TIME\n5 root 1.9s\n"));
    }
}
