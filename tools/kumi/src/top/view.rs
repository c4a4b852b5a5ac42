//! Screen of `kumi top`.

use super::panels::{draw_help, draw_job, draw_question};
use super::rates::NodeRates;
use super::screen::{Mode, Screen};
use super::snapshot::{Snapshot, node_name, processor_words, slot_text};
use crate::cluster::tree::{HEADINGS, TreeLine};
use crate::job_descriptions;
use crate::table;
use kumi_sched::JobId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

/// Colours that distinguish jobs in the timetable.
const JOB_COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];

/// Draws the whole screen. While the head is away, `absence` says so.
pub fn draw(
    frame: &mut Frame<'_>,
    snapshot: &Snapshot,
    absence: Option<&str>,
    screen: &Screen,
    now_ms: u64,
) {
    match screen.mode {
        Mode::Job(job) => {
            let parts = Layout::vertical([1, 0, 1].map(|rows| match rows {
                0 => Constraint::Min(3),
                rows => Constraint::Length(rows),
            }));
            let [title, main, keys] = parts.areas(frame.area());
            draw_title(frame, title, snapshot, absence);
            draw_job(frame, main, snapshot, job, screen.first_row);
            draw_keys(frame, keys, screen);
        }
        _ => draw_list(frame, snapshot, absence, screen, now_ms),
    }
    match screen.mode {
        Mode::Help => draw_help(frame),
        Mode::Confirm(job) => draw_question(frame, snapshot, job),
        _ => {}
    }
}

/// Jobs, nodes, queues and ranks.
fn draw_list(
    frame: &mut Frame<'_>,
    snapshot: &Snapshot,
    absence: Option<&str>,
    screen: &Screen,
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
    draw_title(frame, title, snapshot, absence);
    draw_jobs(frame, jobs, snapshot, screen, now_ms);
    draw_nodes(frame, nodes, snapshot);
    if !tree.is_empty() {
        draw_tree(frame, queues, &tree);
    }
    draw_ranks(frame, ranks, snapshot, screen.first_row);
    draw_keys(frame, keys, screen);
}

/// The last line: what was done last, the filter that is typed, or keys.
fn draw_keys(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let line = match (&screen.note, screen.mode) {
        (Some(note), _) => Line::raw(table::printable(note)),
        (None, Mode::Filter) => Line::raw(format!("filter: {}_", screen.filter)),
        (None, Mode::Job(_)) => Line::styled("Esc back   x kill   PgUp/PgDn scroll   ? help", dim),
        (None, _) => Line::styled("q quit   Enter open   s sort   / filter   x kill   ? help", dim),
    };
    frame.render_widget(line, area);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, absence: Option<&str>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = match absence {
        None => Line::styled(table::printable(&snapshot.title()), bold),
        Some(absence) => {
            let text = format!("cluster {}: {absence}", snapshot.cluster.name);
            Line::styled(table::printable(&text), Style::new().fg(Color::Red))
        }
    };
    frame.render_widget(line, area);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, screen: &Screen, now_ms: u64) {
    let order = screen.order(snapshot);
    let chosen = screen.selected.min(order.len().saturating_sub(1));
    // The chosen job is always in sight.
    let first = (chosen + 1).saturating_sub(usize::from(area.height.saturating_sub(3)).max(1));
    let rows = order.iter().enumerate().skip(first).map(|(place, &index)| {
        let record = &snapshot.jobs.records[index];
        let [number, rest @ ..] = snapshot.job_row(record, now_ms);
        let mark = Cell::from(number).style(Style::new().fg(colour_of(record.spec.job)));
        let row = Row::new([mark].into_iter().chain(rest.into_iter().map(Cell::from)));
        if place == chosen { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let title = jobs_title(screen, order.len(), snapshot.jobs.records.len());
    let widths = [6, 24, 12, 6, 6, 14, 18, 8, 6].map(Constraint::Length);
    let heading = ["JOB", "NAME", "USER", "RANKS", "CPUS", "NODES", "STATE", "TIME", "LOAD"];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(bold))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

/// How many jobs are shown, and in which order.
fn jobs_title(screen: &Screen, shown: usize, all: usize) -> String {
    let mut title = "jobs".to_owned();
    if !screen.filter.is_empty() {
        title.push_str(&format!(", {shown} of {all} with \"{}\"", screen.filter));
    }
    if screen.sort != Default::default() || screen.turned {
        title.push_str(&format!(", by {}", screen.sort.word()));
        title.push_str(if screen.turned { " from the end" } else { "" });
    }
    title
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
        let front = [
            Cell::from(node.node.to_string()),
            Cell::from(node_name(node)),
            Cell::from(word).style(Style::new().fg(colour)),
            Cell::from(processors),
            Cell::from(free),
        ];
        let switches = sample.map_or_else(String::new, |s| s.switching.count.to_string());
        let figures = [switches].into_iter().chain(rate_words(snapshot.rates.get(&node.node)));
        let slots = Cell::from(Line::from_iter(slots));
        Row::new(front.into_iter().chain(figures.map(Cell::from)).chain([slots]))
    });
    let widths = [5, 12, 6, 5, 5, 10, 6, 6, 6, 11].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(8)]);
    let heading = [
        "NODE",
        "NAME",
        "STATE",
        "CPUS",
        "FREE",
        "SWITCHES",
        "COST",
        "BUSY",
        "MEM",
        "NETWORK",
        "TIMETABLE",
    ];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(bold))
        .block(Block::bordered().title("nodes"));
    frame.render_widget(table, area);
}

/// Time that switches take, use of processors and memory, and the network's bytes.
fn rate_words(rates: Option<&NodeRates>) -> [String; 4] {
    let Some(rates) = rates else { return Default::default() };
    let [used, all] = rates.memory_kib;
    let percent = |share: u64| format!("{share}%");
    [
        rates.switching.map_or_else(String::new, |it| format!("{}.{:02}%", it / 100, it % 100)),
        percent(u64::from(rates.busy_permille) / 10),
        used.saturating_mul(100).checked_div(all).map_or_else(String::new, percent),
        format!("{}/s", table::bytes(rates.network_bytes)),
    ]
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
pub fn block_of(permille: Option<u16>) -> &'static str {
    match permille {
        None => "??",
        Some(0..50) => "▁▁",
        Some(50..250) => "▂▂",
        Some(250..500) => "▄▄",
        Some(500..750) => "▆▆",
        Some(_) => "██",
    }
}

/// Its colour.
pub fn style_of(permille: Option<u16>) -> Style {
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

    fn picture(width: u16, height: u16, absence: Option<&str>, first_row: u16) -> String {
        screen_picture(width, height, absence, &Screen { first_row, ..Screen::default() })
    }

    fn screen_picture(width: u16, height: u16, absence: Option<&str>, screen: &Screen) -> String {
        picture_of(snapshot(), (width, height), absence, screen)
    }

    fn picture_of(
        mut snapshot: Snapshot,
        (width, height): (u16, u16),
        absence: Option<&str>,
        screen: &Screen,
    ) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let rates = NodeRates {
            busy_permille: 420,
            memory_kib: [1, 4],
            network_bytes: 3 << 20,
            switches: Some(100),
            switching: Some(7),
        };
        snapshot.rates.insert(kumi_sched::NodeId(0), rates);
        terminal.draw(|frame| draw(frame, &snapshot, absence, screen, 10_000)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_job_its_question_and_the_keys() {
        let mode = |mode| screen_picture(110, 40, None, &Screen { mode, ..Screen::default() });
        let job = mode(Mode::Job(JobId(3)));
        for part in ["job 3 (cg)", "running", "RANK", "100%", "25%", "Esc back"] {
            assert!(job.contains(part), "{part} is not in\n{job}");
        }
        assert!(mode(Mode::Job(JobId(99))).contains("is over"));
        assert!(mode(Mode::Confirm(JobId(4))).contains("Kill job 4 (is)? y: yes"));
        assert!(mode(Mode::Help).contains("turn the order around"));
        let filtered = Screen { filter: "cg".into(), ..Screen::default() };
        assert!(screen_picture(110, 40, None, &filtered).contains("1 of 2 with \"cg\""));
    }

    #[test]
    fn names_of_others_cannot_draw() {
        let evil = "\x1b[2J\u{9b}31m\r\n\u{202e}toor";
        let mut hostile = snapshot();
        let number = hostile.jobs.records[0].spec.job;
        let request = &mut hostile.jobs.records[0].spec.request;
        (request.name, request.cwd, request.program.path) = (evil.into(), evil.into(), evil.into());
        request.args = vec![evil.into()];
        hostile.cluster.name = evil.into();
        for node in hostile.cluster.nodes.iter_mut().filter_map(|node| node.description.as_mut()) {
            node.name = evil.into();
        }
        for mode in [Mode::List, Mode::Job(number), Mode::Confirm(number)] {
            let screen = Screen { mode, ..Screen::default() };
            let text = picture_of(hostile.clone(), (110, 40), Some(evil), &screen);
            assert!(text.contains("toor"), "{text}");
            let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(obeyed), "{text:?}");
        }
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
            "0.07%",
            "25%",
            "3 MiB/s",
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
