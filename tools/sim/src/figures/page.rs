//! Index page of all figures and tables, as HTML and as Markdown.

use std::fmt::Write as _;

use super::line;
use super::section::{Block, Section, Verdict};

/// Head of both forms.
pub(super) struct Head {
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
}

/// The head's lines, then the sections. `ending` is that of the figures shown.
pub(super) fn markdown(head: &Head, sections: &[Section], ending: &str) -> String {
    let mut text = format!("# {}\n", head.title);
    head.lines.iter().for_each(|said| line!(text, "\n{said}"));
    for section in sections {
        line!(text, "\n## {}", section.title);
        for block in &section.blocks {
            match block {
                Block::Text(said) => line!(text, "\n{}", said.trim_end()),
                Block::Table { head, rows } => markdown_table(&mut text, head, rows),
            }
        }
        if !section.statements.is_empty() {
            let (head, rows) = statements(section);
            markdown_table(&mut text, &head, &rows);
        }
        for (stem, caption) in &section.figures {
            line!(text, "\n![{caption}]({stem}.{ending})\n\n{caption}");
        }
    }
    text
}

fn markdown_table(text: &mut String, head: &[String], rows: &[Vec<String>]) {
    line!(text, "\n| {} |", head.join(" | "));
    line!(text, "|{}", "---|".repeat(head.len()));
    rows.iter().for_each(|row| line!(text, "| {} |", row.join(" | ")));
}

/// The statements of a section as a table.
fn statements(section: &Section) -> (Vec<String>, Vec<Vec<String>>) {
    let head = ["the paper says", "here", "holds"].map(str::to_owned).to_vec();
    let row = |statement: &super::Statement| {
        let word = statement.verdict.word();
        let word =
            if statement.verdict == Verdict::Holds { word.into() } else { format!("**{word}**") };
        vec![statement.what.clone(), statement.numbers.clone(), word]
    };
    (head, section.statements.iter().map(row).collect())
}

const STYLE: &str = "\
body { font: 15px/1.45 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { border: 1px solid #ccc; padding: .2em .6em }
th { background: #f2f2f2; text-align: left } figure { display: inline-block; margin: 1em 0; width: 34em }
figure img { width: 100% } figcaption { font-size: .9em; color: #555 } b { color: #b00 }
";

/// The same as HTML, which needs no files outside of the folder.
pub(super) fn html(head: &Head, sections: &[Section], endings: &[&str]) -> String {
    let title = escaped(head.title);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    head.lines.iter().for_each(|said| line!(text, "<p>{}</p>", escaped(said)));
    line!(text, "<ul>");
    for (index, section) in sections.iter().enumerate() {
        line!(text, "<li><a href=\"#part-{index}\">{}</a></li>", escaped(&section.title));
    }
    line!(text, "</ul>");
    for (index, section) in sections.iter().enumerate() {
        line!(text, "<h2 id=\"part-{index}\">{}</h2>", escaped(&section.title));
        for block in &section.blocks {
            match block {
                Block::Text(said) => line!(text, "<p>{}</p>", escaped(said)),
                Block::Table { head, rows } => html_table(&mut text, head, rows),
            }
        }
        if !section.statements.is_empty() {
            let (head, rows) = statements(section);
            html_table(&mut text, &head, &rows);
        }
        section.figures.iter().for_each(|(stem, caption)| {
            html_figure(&mut text, stem, &escaped(caption), endings);
        });
    }
    line!(text, "</body></html>");
    text
}

fn html_table(text: &mut String, head: &[String], rows: &[Vec<String>]) {
    let cells = |kind: &str, row: &[String]| -> String {
        row.iter().map(|cell| format!("<{kind}>{}</{kind}>", emphasised(cell))).collect()
    };
    line!(text, "<table>\n<tr>{}</tr>", cells("th", head));
    rows.iter().for_each(|row| line!(text, "<tr>{}</tr>", cells("td", row)));
    line!(text, "</table>");
}

/// Shows the first of the formats and links the others.
fn html_figure(text: &mut String, stem: &str, caption: &str, endings: &[&str]) {
    let Some((shown, others)) = endings.split_first() else { return };
    let links: String = others
        .iter()
        .map(|ending| format!(" (<a href=\"{stem}.{ending}\">{ending}</a>)"))
        .collect();
    line!(
        text,
        "<figure><img src=\"{stem}.{shown}\" alt=\"{caption}\"><figcaption>{caption}{links}</figcaption></figure>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A cell of a table; in Markdown a whole cell may be bold.
fn emphasised(cell: &str) -> String {
    match cell.strip_prefix("**").and_then(|cell| cell.strip_suffix("**")) {
        Some(inner) => format!("<b>{}</b>", escaped(inner)),
        None => escaped(cell),
    }
}
