//! Parts of a document for the checks: headings, links, code blocks and code in the text.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;

/// A block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The text after the fence: the language, and marks after commas.
    pub info: String,
    /// The code.
    pub code: String,
    /// The line of the fence, from 1.
    pub line: usize,
    /// The file that holds it too, as a comment `from: PATH` before it says.
    pub from: Option<String>,
}

impl Block {
    /// The language.
    pub fn language(&self) -> &str {
        self.info.split(',').next().unwrap_or_default().trim()
    }

    /// Whether it is marked so.
    pub fn is_marked(&self, mark: &str) -> bool {
        self.info.split(',').skip(1).any(|found| found.trim() == mark)
    }
}

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Path from the root of the repository.
    pub path: String,
    /// Where links can lead to, in order.
    pub anchors: Vec<String>,
    /// Where links lead, with their lines.
    pub links: Vec<(String, usize)>,
    /// Blocks of code.
    pub blocks: Vec<Block>,
    /// Code in the text, with its lines.
    pub code: Vec<(String, usize)>,
    /// The first heading.
    pub title: String,
}

impl Page {
    /// Reads a document.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut page = Self { path: path.to_owned(), ..Self::default() };
        let mut heading: Option<String> = None;
        let mut block: Option<Block> = None;
        let mut counts = BTreeMap::new();
        let mut from = None;
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        let lines = Lines::of(text);
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            let line = lines.at(range.start);
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(level)) => {
                    let words = heading.take().unwrap_or_default();
                    if level == HeadingLevel::H1 && page.title.is_empty() {
                        page.title.clone_from(&words);
                    }
                    page.anchors.push(unique(anchor(&words), &mut counts));
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    block = Some(Block { info, code: String::new(), line, from: from.take() });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((dest_url.to_string(), line));
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    page.code.push((code.to_string(), line));
                }
                Event::Text(text) => {
                    if let Some(block) = &mut block {
                        block.code.push_str(&text);
                    } else if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    ids(&html, &mut page.anchors);
                    let named = html.trim().strip_prefix("<!-- from: ");
                    from = named
                        .and_then(|rest| rest.strip_suffix(" -->"))
                        .map(str::to_owned)
                        .or(from);
                }
                _ => {}
            }
        }
        page
    }
}

/// The places `<a id="…">` of HTML.
fn ids(html: &str, anchors: &mut Vec<String>) {
    for (at, mark) in html.match_indices("id=\"") {
        let rest = &html[at + mark.len()..];
        anchors.extend(rest.split('"').next().map(str::to_owned));
    }
}

/// Lines of offsets.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|&newline| newline < offset) + 1
    }
}

/// The name by which a heading is reached, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn unique(name: String, counts: &mut BTreeMap<String, usize>) -> String {
    let count = counts.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_taken_apart() {
        let text = "# The `kumi` book\n\nSee [a](b.md#c) and `x y`.\n\n## Use it\n\n```sh,ignore\nls\n```\n\n## Use it\n\n    plain\n";
        let page = Page::parse("docs/x.md", text);
        assert_eq!(page.title, "The kumi book");
        assert_eq!(page.anchors, ["the-kumi-book", "use-it", "use-it-1"]);
        assert_eq!(page.links, [("b.md#c".to_owned(), 3)]);
        assert_eq!(page.code, [("kumi".to_owned(), 1), ("x y".to_owned(), 3)]);
        assert_eq!((page.blocks[0].language(), page.blocks[0].line), ("sh", 7));
        assert!(page.blocks[0].is_marked("ignore"));
        assert_eq!((&*page.blocks[1].info, &*page.blocks[1].code), ("", "plain\n"));
    }
}
