//! Parts of a page that are generated: between two comments, the rest is written by hand.

/// The page with what stands between the comments of region `name` replaced; `None` if it has no such region.
pub fn replace(page: &str, name: &str, content: &str) -> Option<String> {
    let begin = format!("<!-- generated: {name} -->\n");
    let end = format!("<!-- end of {name} -->");
    let start = page.find(&begin)? + begin.len();
    let stop = start + page[start..].find(&end)?;
    Some(format!("{}{}\n{}", &page[..start], content.trim_end(), &page[stop..]))
}

/// A table: its head and its rows, cells made safe.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = line(&head);
    text += &format!("|{}\n", "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &line(&cells);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_region_changes() {
        let page = "a\n<!-- generated: x -->\nold\n<!-- end of x -->\nb\n";
        let expected = "a\n<!-- generated: x -->\nnew\n<!-- end of x -->\nb\n";
        assert_eq!(replace(page, "x", "new\n\n").as_deref(), Some(expected));
        assert_eq!(replace(expected, "x", "new").as_deref(), Some(expected), "twice is as once");
        assert_eq!(replace(page, "y", "new"), None);
        assert_eq!(replace("<!-- generated: x -->\n", "x", "new"), None, "it never ends");
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it() {
        assert_eq!(
            table(&["a", "b"], &[vec!["x|y".into(), "z".into()]]),
            "| a | b |\n|---|---|\n| x\\|y | z |\n"
        );
    }
}
