//! Screen of `kumi top`.

use super::snapshot::{Snapshot, node_name, processor_words, slot_text};
use crate::cluster::tree::{HEADINGS, TreeLine};
use crate::job_descriptions;
use kumi_sched::JobId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

/// Colours that distinguish jobs in the timetable.
const JOB_COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];

/// Draws the whole screen. `trouble` is the reason why it is out of date; `first` is the first visible line
/// of the grid of ranks.
pub fn draw(
    frame: &mut Frame<'_>,
    snapshot: &Snapshot,
    trouble: Option<&str>,
    first: u16,
    now_ms: u64,
) {
    let height = frame.area().height;
    let rows = |count: usize, most: u16| u16::try_from(count).unwrap_or(most).min(most);
    let jobs = rows(snapshot.jobs.records.len(), height / 3) + 3;
    let nodes = rows(snapshot.cluster.nodes.len(), height / 4) + 3;
    let tree = snapshot.tree(usize::from(frame.area().width.saturating_sub(2)));
    let queues = if tree.is_empty() { 0 } else { rows(tree.len(), height / 4) + 3 };
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(jobs),
        Constraint::Length(nodes),
        Constraint::Length(queues),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [title, jobs, nodes, queues, ranks, keys] = parts.areas(frame.area());
    draw_title(frame, title, snapshot, trouble);
    draw_jobs(frame, jobs, snapshot, now_ms);
    draw_nodes(frame, nodes, snapshot);
    if !tree.is_empty() {
        draw_tree(frame, queues, &tree);
    }
    draw_ranks(frame, ranks, snapshot, first);
    let dim = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Line::styled("q quit   up/down scroll the ranks", dim), keys);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, trouble: Option<&str>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(snapshot.title(), bold)];
    if let Some(trouble) = trouble {
        spans.push(Span::styled(format!("   {trouble}"), Style::new().fg(Color::Red)));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, now_ms: u64) {
    let rows =
        snapshot.jobs.records.iter().zip(snapshot.job_rows(now_ms)).map(|(record, cells)| {
            let [number, rest @ ..] = cells;
            let mark = Cell::from(number).style(Style::new().fg(colour_of(record.spec.job)));
            Row::new([mark].into_iter().chain(rest.into_iter().map(Cell::from)))
        });
    let widths = [6, 24, 12, 6, 6, 14, 18, 8, 6].map(Constraint::Length);
    let heading = ["JOB", "NAME", "USER", "RANKS", "CPUS", "NODES", "STATE", "TIME", "LOAD"];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(bold))
        .block(Block::bordered().title("jobs"));
    frame.render_widget(table, area);
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let rows = snapshot.cluster.nodes.iter().map(|node| {
        let (word, colour) = if node.up { ("up", Color::Green) } else { ("down", Color::Red) };
        let sample = snapshot.samples.iter().find(|sample| sample.node == node.node);
        let slots = snapshot.slots(node.node).into_iter().flat_map(|slot| {
            let style = slot.first().map_or(Style::new(), |&job| Style::new().fg(colour_of(job)));
            [Span::styled(slot_text(&slot), style), Span::raw(" ")]
        });
        let [processors, free] = processor_words(node);
        Row::new([
            Cell::from(node.node.to_string()),
            Cell::from(node_name(node)),
            Cell::from(word).style(Style::new().fg(colour)),
            Cell::from(processors),
            Cell::from(free),
            Cell::from(sample.map_or_else(String::new, |s| s.switching.count.to_string())),
            Cell::from(Line::from_iter(slots)),
        ])
    });
    let widths = [6, 16, 6, 6, 6, 10].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(8)]);
    let heading = ["NODE", "NAME", "STATE", "CPUS", "FREE", "SWITCHES", "TIMETABLE"];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(bold))
        .block(Block::bordered().title("nodes"));
    frame.render_widget(table, area);
}

/// The tree of queues; queues on the front stand out.
fn draw_tree(frame: &mut Frame<'_>, area: Rect, tree: &[TreeLine]) {
    let rows = tree.iter().map(|line| {
        let colour = if line.front { Color::Green } else { Color::Reset };
        Row::new(line.cells.clone()).style(Style::new().fg(colour))
    });
    let widest = |cell: usize| {
        let cells = tree.iter().map(|line| line.cells[cell].chars().count());
        cells.chain([HEADINGS[cell].len()]).max().unwrap_or(0)
    };
    let widths = (0..HEADINGS.len())
        .map(|cell| Constraint::Length(u16::try_from(widest(cell)).unwrap_or(u16::MAX)));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows, widths)
        .column_spacing(2)
        .header(Row::new(HEADINGS).style(bold))
        .block(Block::bordered().title("queues"));
    frame.render_widget(table, area);
}

/// The grid: a block for each rank, coloured by its load (SCore-D paper, §6.5: real-time load monitor).
fn draw_ranks(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, first: u16) {
    let across = usize::from(area.width.saturating_sub(2) / 3).max(1);
    let mut lines = Vec::new();
    for record in &snapshot.jobs.records {
        let job = job_descriptions::job(record.spec.job.0, &record.spec.request.name);
        lines.push(Line::styled(job, Style::new().fg(colour_of(record.spec.job))));
        for part in snapshot.loads(record).chunks(across) {
            let blocks = part.iter().flat_map(|load| {
                [Span::styled(block_of(load.permille), style_of(load.permille)), Span::raw(" ")]
            });
            lines.push(Line::from_iter(blocks));
        }
    }
    let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(1);
    let grid = Paragraph::new(lines)
        .scroll((first.min(most), 0))
        .block(Block::bordered().title("load of the ranks"));
    frame.render_widget(grid, area);
}

fn colour_of(job: JobId) -> Color {
    let count = JOB_COLOURS.len() as u64;
    JOB_COLOURS[usize::try_from(job.0 % count).unwrap_or(0)]
}

/// The height also shows the load, so that it can be read without colours.
fn block_of(permille: Option<u16>) -> &'static str {
    match permille {
        None => "??",
        Some(0..50) => "▁▁",
        Some(50..250) => "▂▂",
        Some(250..500) => "▄▄",
        Some(500..750) => "▆▆",
        Some(_) => "██",
    }
}

fn style_of(permille: Option<u16>) -> Style {
    Style::new().fg(match permille {
        None => Color::DarkGray,
        Some(0..50) => Color::Blue,
        Some(50..250) => Color::Cyan,
        Some(250..500) => Color::Green,
        Some(500..750) => Color::Yellow,
        Some(_) => Color::Red,
    })
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::snapshot;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(width: u16, height: u16, trouble: Option<&str>, first: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &snapshot(), trouble, first, 10_000)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_in_the_picture() {
        let text = picture(110, 40, None, 0);
        for part in [
            "rounding",
            "4x3 (5)",
            "cluster lab: 1 of 2 nodes up",
            "running",
            "TIMETABLE",
            "3 4 .",
            "42",
            "down",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.contains("██ ▄▄ ?? ??"), "{text}");
        assert!(text.contains("▁▁ ██ ?? ??"), "{text}");
    }

    #[test]
    fn an_old_picture_says_so() {
        assert!(picture(110, 24, Some("the head does not answer"), 0).contains("does not answer"));
    }

    #[test]
    fn no_size_and_no_scrolling_is_too_much() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 100)] {
            picture(width, height, None, 0);
            picture(width, height, Some("x"), u16::MAX);
        }
    }
}
