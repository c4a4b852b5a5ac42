//! The trace as one HTML page without any other file: its data as JSON, and a script that draws them.

use super::advice::Figures;
use super::arrows::Arrow;
use super::model::{RankTrace, Trace, describe, kind_name};
use serde_json::{Value, json};

/// Most events in the page, so that browsers can show it. The last ones of each rank stay.
const MOST_EVENTS: usize = 400_000;
/// Most arrows in the page: the last ones.
const MOST_ARROWS: usize = 400_000;
/// Most rows of a table.
const MOST_ROWS: usize = 100;

const TEMPLATE: &str = include_str!("page.html");

/// The page.
pub fn document(trace: &Trace, arrows: &[Arrow], figures: &Figures, advice: &[String]) -> String {
    let data = data(trace, arrows, figures, advice);
    TEMPLATE.replacen("@DATA@", &escaped(&data), 1)
}

/// JSON that cannot end the element that it stands in, whatever names are in it.
fn escaped(data: &Value) -> String {
    let mut text = String::new();
    for c in data.to_string().chars() {
        match c {
            // These occur in strings only, where JSON knows such notations.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => text.push(c),
        }
    }
    text
}

fn data(trace: &Trace, arrows: &[Arrow], figures: &Figures, advice: &[String]) -> Value {
    let each = MOST_EVENTS / trace.ranks.len().max(1);
    let arrows: Vec<Value> = arrows[arrows.len().saturating_sub(MOST_ARROWS)..]
        .iter()
        .map(|one| json!([one.from.0, one.from.1, one.to.0, one.to.1, one.kind.word()]))
        .collect();
    json!({
        "job": trace.job,
        "name": trace.name,
        "length": trace.length,
        "advice": advice,
        "ranks": trace.ranks.iter().map(|rank| rank_data(trace, rank, each)).collect::<Vec<_>>(),
        "arrows": arrows,
        "tables": [pages(trace, figures), shared(trace, figures), locks(figures), barriers(trace, figures)],
    })
}

fn rank_data(trace: &Trace, rank: &RankTrace, most: usize) -> Value {
    let shown = &rank.events[rank.events.len().saturating_sub(most)..];
    let event = |one: &kumi_control::message::TraceEvent| {
        json!([one.time, one.duration, kind_name(one.kind), describe(trace, one)])
    };
    json!({
        "rank": rank.rank,
        "node": rank.node,
        "lost": rank.lost,
        "implausible": rank.implausible,
        "left_out": rank.events.len() - shown.len(),
        "events": shown.iter().map(event).collect::<Vec<_>>(),
    })
}

fn table(title: &str, headings: &[&str], mut rows: Vec<(u64, Vec<String>)>) -> Value {
    rows.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    json!({"title": title, "headings": headings, "rows": rows, "left_out": left_out})
}

/// Numbers in a row.
fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn pages(trace: &Trace, figures: &Figures) -> Value {
    let moved = figures.pages.by_number.iter().filter(|(_, one)| one.traffic() > 0);
    let rows = moved.map(|(page, one)| {
        let fetched = one.fetches.iter().map(|(node, times)| format!("node {node}: {times}"));
        let row = vec![
            page.to_string(),
            trace.page_name(*page),
            one.fetched().to_string(),
            list(fetched),
            one.diffs[0].to_string(),
            one.diffs[1].to_string(),
            one.home.map_or_else(String::new, |home| home.to_string()),
        ];
        (one.traffic(), row)
    });
    let headings =
        ["page", "place", "fetches", "by", "diffs", "bytes of diffs", "last home (rank)"];
    table("Pages by traffic", &headings, rows.collect())
}

fn shared(trace: &Trace, figures: &Figures) -> Value {
    let shared = figures.pages.by_number.iter().filter(|(_, one)| one.shared_writes > 0);
    let rows = shared.map(|(page, one)| {
        let row = vec![
            page.to_string(),
            trace.page_name(*page),
            one.shared_writes.to_string(),
            list(one.writes.keys()),
            one.traffic().to_string(),
        ];
        (one.traffic(), row)
    });
    let headings = ["page", "place", "intervals", "written by nodes", "transfers"];
    table("Pages written by several nodes between two barriers", &headings, rows.collect())
}

fn locks(figures: &Figures) -> Value {
    let rows = figures.locks.iter().map(|(lock, used)| {
        let row = vec![
            lock.to_string(),
            used.taken.to_string(),
            used.handed_over.to_string(),
            list(&used.ranks),
            time(used.waited),
            time(used.longest),
            time(used.held),
        ];
        (used.waited, row)
    });
    let headings = ["lock", "taken", "handed over", "ranks", "waited", "longest wait", "held"];
    table("Locks by waiting", &headings, rows.collect())
}

fn barriers(trace: &Trace, figures: &Figures) -> Value {
    let barriers = &figures.barriers;
    let rows = trace.ranks.iter().map(|rank| {
        let last = barriers.last.get(&rank.rank).copied().unwrap_or(0);
        let waited = barriers.by_rank.get(&rank.rank).copied().unwrap_or(0);
        let row =
            vec![rank.rank.to_string(), time(waited), format!("{last} of {}", barriers.passed)];
        (waited, row)
    });
    table("Ranks by waiting at barriers", &["rank", "waited", "came last"], rows.collect())
}

/// A time in words.
pub fn time(nanoseconds: u64) -> String {
    crate::table::nanos(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::*;
    use kumi_control::message::TraceKind;

    #[test]
    fn names_cannot_become_markup_or_script() {
        let mut trace = trace(vec![vec![event(TraceKind::Written, (0, 0), 1)]]);
        let hostile = "</script><script>alert(1)</script><!--&\u{2028}@DATA@\"'";
        hostile.clone_into(&mut trace.allocations[0].name);
        hostile.clone_into(&mut trace.name);
        let page = document(&trace, &[], &Figures::default(), &[hostile.to_owned()]);
        assert_eq!(page.matches("<script").count(), TEMPLATE.matches("<script").count());
        let begin = page.find("type=\"application/json\">").unwrap();
        let json = page[begin..].split_once('>').unwrap().1.split_once("</script>").unwrap().0;
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        let data: Value = serde_json::from_str(json).unwrap();
        assert_eq!((&data["name"], &data["advice"][0]), (&json!(hostile), &json!(hostile)));
        let told = data["ranks"][0]["events"][0][3].as_str().unwrap();
        assert!(told.contains("</script>"), "as it is, in the data: {told}");
    }

    #[test]
    fn the_page_needs_no_network() {
        for word in ["http:", "https:", "src=", "@import", "innerHTML", "eval("] {
            assert!(!TEMPLATE.replace("http://www.w3.org/2000/svg", "").contains(word), "{word}");
        }
    }

    #[test]
    fn tables_have_the_heaviest_rows_first_and_count_the_rest() {
        let rows = (0..150).map(|weight: u64| (weight, vec![weight.to_string()])).collect();
        let table = table("t", &["n"], rows);
        assert_eq!((&table["rows"][0][0], &table["left_out"]), (&json!("149"), &json!(50)));
    }
}
