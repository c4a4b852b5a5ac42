//! What stands over the list of `kumi top`: one job, the keys, a question.

use super::screen::KEYS;
use super::snapshot::Snapshot;
use super::view::{block_of, style_of};
use crate::job_descriptions;
use kumi_control::message::RankSample;
use kumi_sched::JobId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, Wrap};

/// Counters of the table, by name, with headings.
const COUNTERS: [(&str, &str); 7] = [
    ("sent", "SENT"),
    ("delivered", "TAKEN"),
    ("unread", "UNREAD"),
    ("resends", "RESENT"),
    ("unacked_packets", "UNACKED"),
    ("waits_blocked", "BLOCKED"),
    ("waits_spun", "SPUN"),
];

/// One job: what it is, and each of its ranks.
pub fn draw_job(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, job: JobId, first: u16) {
    let record = snapshot.jobs.records.iter().find(|record| record.spec.job == job);
    let Some(record) = record else {
        let gone =
            Paragraph::new(format!("job {job} is over; see `kumi ps --all`, `kumi logs {job}`"));
        return frame.render_widget(gone.block(Block::bordered()), area);
    };
    let [facts, ranks] = Layout::vertical([Constraint::Length(5), Constraint::Min(3)]).areas(area);
    let state = job_descriptions::state(&record.state, snapshot.jobs.verdict(job));
    let waits = snapshot.jobs.waits_for(job).map(|reason| format!(": {reason}"));
    let lines = vec![
        Line::raw(format!("{state}{}", waits.unwrap_or_default())),
        Line::raw(crate::table::printable(&job_descriptions::command(record))),
        Line::raw(crate::table::printable(&record.spec.request.cwd)),
    ];
    let title = job_descriptions::job(job.0, &record.spec.request.name);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), facts);
    let node_of = |rank: u32| {
        let mut parts = record.spec.layout.iter();
        parts
            .find(|part| (part.first..part.first + part.count).contains(&rank))
            .map(|part| part.node)
    };
    let samples: Vec<&RankSample> = snapshot.ranks_of(job);
    let rows = snapshot.loads(record).into_iter().skip(first.into()).map(|load| {
        let sample = samples.iter().find(|sample| sample.rank == load.rank);
        let counter = |name: &str| {
            let found = sample.and_then(|it| it.counters.iter().find(|(known, _)| known == name));
            found.map_or_else(|| "-".to_owned(), |(_, value)| value.to_string())
        };
        let node = node_of(load.rank).map_or_else(|| "-".to_owned(), |node| node.to_string());
        let percent = load.permille.map_or_else(|| "-".to_owned(), |it| format!("{}%", it / 10));
        let block = Span::styled(block_of(load.permille), style_of(load.permille));
        let front = [
            Line::raw(load.rank.to_string()),
            Line::raw(node),
            Line::raw(percent),
            Line::from(block),
        ];
        Row::new(front.into_iter().chain(COUNTERS.iter().map(|(name, _)| Line::raw(counter(name)))))
    });
    let headings =
        ["RANK", "NODE", "LOAD", ""].into_iter().chain(COUNTERS.iter().map(|(_, word)| *word));
    let widths = [6, 6, 6, 3].into_iter().chain([12; COUNTERS.len()]).map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(Row::new(headings).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title("ranks"));
    frame.render_widget(table, ranks);
}

/// A box in the middle.
fn over(frame: &mut Frame<'_>, title: &'static str, lines: Vec<Line<'_>>) {
    let all = frame.area();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(all.height);
    let width = 72.min(all.width);
    let (x, y) = ((all.width - width) / 2, (all.height - height) / 2);
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(text.block(Block::bordered().title(title)), area);
}

/// The keys.
pub fn draw_help(frame: &mut Frame<'_>) {
    let line = |&(key, text): &(&'static str, &'static str)| {
        let key = Span::styled(format!("{key:<16}"), Style::new().add_modifier(Modifier::BOLD));
        Line::from_iter([key, Span::raw(text)])
    };
    over(frame, "keys", KEYS.iter().map(line).collect());
}

/// The question whether to kill a job.
pub fn draw_question(frame: &mut Frame<'_>, snapshot: &Snapshot, job: JobId) {
    let record = snapshot.jobs.records.iter().find(|record| record.spec.job == job);
    let name = record.map_or("", |record| &record.spec.request.name);
    let what = job_descriptions::job(job.0, name);
    over(frame, "kill", vec![Line::raw(format!("Kill {what}? y: yes, any other key: no"))]);
}
