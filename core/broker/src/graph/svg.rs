//! Pictures of a graph in SVG and Graphviz.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::Write as _;

use super::{DependencyKind, Graph, Node, State};

const WIDTH: u32 = 160;
const HEIGHT: u32 = 36;
const GAP: (u32, u32) = (24, 48);

/// Longest name in a box.
const LONGEST: usize = 20;

impl State {
    fn colour(&self) -> &'static str {
        match self {
            Self::Waiting => "#eeeeee",
            Self::Ready => "#fff2cc",
            Self::Running => "#cfe2f3",
            Self::Done(_) => "#d9ead3",
            Self::Failed(_) => "#f4cccc",
            Self::Skipped(_) | Self::Cancelled => "#d9d9d9",
        }
    }
}

impl Graph {
    /// The graph for Graphviz. Dependencies of order are dashed.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph transaction {\n  node [shape=box, style=filled];\n");
        for (node, vertex) in self.nodes().zip(&self.vertices) {
            let name = vertex.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
            let colour = vertex.state.colour();
            put(
                &mut text,
                format_args!(
                    "  c{} [label=\"{} {name}\", fillcolor=\"{colour}\"];\n",
                    node.0, node.0
                ),
            );
        }
        for node in self.nodes() {
            for (from, why) in self.after(node) {
                let style = if why == DependencyKind::Order { " [style=dashed]" } else { "" };
                put(&mut text, format_args!("  c{} -> c{}{style};\n", from.0, node.0));
            }
        }
        text + "}\n"
    }

    /// The graph as SVG, with one row for each level of dependencies.
    #[must_use]
    pub fn svg(&self) -> String {
        self.svg_with(|_| String::new())
    }

    /// The graph as SVG, with a second line in each box.
    #[must_use]
    pub fn svg_with(&self, note: impl Fn(Node) -> String) -> String {
        let mut columns: BTreeMap<u32, u32> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (node, vertex) in self.nodes().zip(&self.vertices) {
            let column = columns.entry(vertex.level).or_default();
            places.insert(node, (*column * (WIDTH + GAP.0), vertex.level * (HEIGHT + GAP.1)));
            *column += 1;
        }
        let widest = columns.values().copied().max().unwrap_or(0);
        let (width, height) =
            (widest * (WIDTH + GAP.0) + GAP.0, columns.len() as u32 * (HEIGHT + GAP.1) + GAP.0);
        let mut text = String::new();
        put(
            &mut text,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"-12 -12 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
            ),
        );
        let place = |node: Node| places.get(&node).copied().unwrap_or_default();
        for node in self.nodes() {
            let (x, y) = place(node);
            for (from, why) in self.after(node) {
                let (u, v) = place(from);
                let dashes =
                    if why == DependencyKind::Order { " stroke-dasharray=\"4 3\"" } else { "" };
                put(
                    &mut text,
                    format_args!(
                        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{y}\" stroke=\"#666666\"{dashes}/>\n",
                        u + WIDTH / 2,
                        v + HEIGHT,
                        x + WIDTH / 2
                    ),
                );
            }
        }
        for node in self.nodes() {
            self.draw(node, place(node), &note(node), &mut text);
        }
        text + "</svg>\n"
    }

    /// Draws the box of a call.
    fn draw(&self, node: Node, (x, y): (u32, u32), note: &str, text: &mut String) {
        let Some(vertex) = self.vertex(node) else { return };
        let name: String = vertex.name.chars().take(LONGEST).collect();
        let line = if note.is_empty() { HEIGHT / 2 + 4 } else { HEIGHT / 2 - 3 };
        put(
            text,
            format_args!(
                "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"4\" fill=\"{}\" stroke=\"#666666\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} {}</text></g>\n",
                escaped(&self.explain(node)),
                vertex.state.colour(),
                x + WIDTH / 2,
                y + line,
                node.0,
                escaped(&name)
            ),
        );
        if !note.is_empty() {
            put(
                text,
                format_args!(
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{}</text>\n",
                    x + WIDTH / 2,
                    y + HEIGHT - 6,
                    escaped(note)
                ),
            );
        }
    }
}

fn put(text: &mut String, what: core::fmt::Arguments<'_>) {
    let written = text.write_fmt(what);
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

/// Escapes text for XML; characters that XML does not allow become spaces.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}
