//! State of the screen of `kumi top`: what the keys have chosen. It knows no terminal.

use super::snapshot::Snapshot;
use crossterm::event::KeyCode;
use kumi_control::message::JobRecord;
use kumi_sched::JobId;
use std::cmp::Ordering;

/// Keys and their meanings.
pub const KEYS: [(&str, &str); 12] = [
    ("up, down, j, k", "choose a job"),
    ("Enter", "open the job: its ranks and counters"),
    ("Esc", "back; in the list: quit"),
    ("s", "sort by the next column"),
    ("r", "turn the order around"),
    ("/", "filter by name or user; Enter keeps it, Esc drops it"),
    ("x", "kill the job, after a question"),
    ("PgUp, PgDn", "scroll the ranks"),
    ("Home", "back to the first rank"),
    ("?, h", "this help"),
    ("q", "quit"),
    ("Ctrl-C", "quit"),
];

/// Longest filter.
const MOST_FILTER: usize = 100;

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Jobs, nodes and ranks.
    #[default]
    List,
    /// The same, while the filter is typed.
    Filter,
    /// One job.
    Job(JobId),
    /// Keys.
    Help,
    /// A question whether to kill a job.
    Confirm(JobId),
}

/// Order of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By number.
    #[default]
    Number,
    /// By name.
    Name,
    /// By user.
    User,
    /// By number of ranks.
    Ranks,
    /// By time since the start.
    Time,
    /// By mean load.
    Load,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Number => Self::Name,
            Self::Name => Self::User,
            Self::User => Self::Ranks,
            Self::Ranks => Self::Time,
            Self::Time => Self::Load,
            Self::Load => Self::Number,
        }
    }

    /// The column in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Name => "name",
            Self::User => "user",
            Self::Ranks => "ranks",
            Self::Time => "time",
            Self::Load => "load",
        }
    }
}

/// What a key asks of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Only to draw.
    Draw,
    /// To end.
    Quit,
    /// To have the head kill a job.
    Kill(JobId),
}

/// What the keys have chosen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    pub mode: Mode,
    pub sort: Sort,
    pub turned: bool,
    pub filter: String,
    /// Place of the chosen job among those that are shown.
    pub selected: usize,
    /// How far the ranks are scrolled.
    pub first_row: u16,
    /// What became of the last kill.
    pub note: Option<String>,
}

impl Screen {
    /// The jobs to show, by place in the snapshot, in order.
    pub fn order(&self, snapshot: &Snapshot) -> Vec<usize> {
        let records = &snapshot.jobs.records;
        let text = self.filter.to_lowercase();
        let matches = |record: &JobRecord| {
            let user = crate::output::user_name(record.spec.user.uid);
            [&record.spec.request.name, &user].iter().any(|it| it.to_lowercase().contains(&text))
        };
        let mut order: Vec<usize> =
            (0..records.len()).filter(|&at| text.is_empty() || matches(&records[at])).collect();
        order.sort_by(|&one, &other| {
            let by = self.compare(snapshot, &records[one], &records[other]);
            let by = if self.turned { by.reverse() } else { by };
            by.then(one.cmp(&other))
        });
        order
    }

    fn compare(&self, snapshot: &Snapshot, one: &JobRecord, other: &JobRecord) -> Ordering {
        let load = |record| snapshot.mean_permille(record);
        match self.sort {
            Sort::Number => one.spec.job.cmp(&other.spec.job),
            Sort::Name => one.spec.request.name.cmp(&other.spec.request.name),
            Sort::User => one.spec.user.uid.cmp(&other.spec.user.uid),
            // What is large comes first: that is looked for.
            Sort::Ranks => other.spec.request.ranks.cmp(&one.spec.request.ranks),
            Sort::Time => {
                let since = |record: &JobRecord| record.started_ms.unwrap_or(u64::MAX);
                since(one).cmp(&since(other))
            }
            Sort::Load => load(other).cmp(&load(one)),
        }
    }

    /// The chosen job.
    pub fn chosen(&self, snapshot: &Snapshot) -> Option<JobId> {
        let order = self.order(snapshot);
        let place = order.get(self.selected.min(order.len().saturating_sub(1)))?;
        Some(snapshot.jobs.records[*place].spec.job)
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyCode, control: bool, snapshot: &Snapshot) -> KeyAction {
        if control && key == KeyCode::Char('c') {
            return KeyAction::Quit;
        }
        self.note = None;
        match self.mode {
            Mode::Filter => self.filter_key(key),
            Mode::Confirm(job) => {
                self.mode = Mode::List;
                if key == KeyCode::Char('y') {
                    return KeyAction::Kill(job);
                }
            }
            Mode::Help => self.mode = Mode::List,
            Mode::List | Mode::Job(_) => return self.list_key(key, snapshot),
        }
        KeyAction::Draw
    }

    fn filter_key(&mut self, key: KeyCode) {
        self.selected = 0;
        match key {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.len() < MOST_FILTER => self.filter.push(letter),
            _ => {}
        }
    }

    fn list_key(&mut self, key: KeyCode, snapshot: &Snapshot) -> KeyAction {
        let opened = match self.mode {
            Mode::Job(job) => Some(job),
            _ => None,
        };
        let last = self.order(snapshot).len().saturating_sub(1);
        match key {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Esc if opened.is_none() => return KeyAction::Quit,
            KeyCode::Esc => (self.mode, self.first_row) = (Mode::List, 0),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::PageUp => self.first_row = self.first_row.saturating_sub(10),
            KeyCode::PageDown => self.first_row = self.first_row.saturating_add(10),
            KeyCode::Home => self.first_row = 0,
            KeyCode::Char('x') => {
                if let Some(job) = opened.or_else(|| self.chosen(snapshot)) {
                    self.mode = Mode::Confirm(job);
                }
            }
            KeyCode::Up | KeyCode::Char('k') => {
                self.selected = self.selected.min(last).saturating_sub(1);
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Enter => {
                if let Some(job) = self.chosen(snapshot).filter(|_| opened.is_none()) {
                    (self.mode, self.first_row) = (Mode::Job(job), 0);
                }
            }
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.turned = !self.turned,
            KeyCode::Char('/') if opened.is_none() => self.mode = Mode::Filter,
            _ => {}
        }
        KeyAction::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::snapshot;
    use super::*;

    fn keys(screen: &mut Screen, keys: &[KeyCode]) -> KeyAction {
        let snapshot = snapshot();
        keys.iter().map(|&key| screen.key(key, false, &snapshot)).last().unwrap()
    }

    #[test]
    fn a_job_is_killed_only_after_the_question() {
        let mut screen = Screen::default();
        let x = KeyCode::Char('x');
        assert_eq!(keys(&mut screen, &[KeyCode::Down, x]), KeyAction::Draw);
        assert_eq!(screen.mode, Mode::Confirm(JobId(4)));
        assert_eq!(keys(&mut screen, &[KeyCode::Enter]), KeyAction::Draw, "only y says yes");
        assert_eq!(keys(&mut screen, &[x, KeyCode::Char('y')]), KeyAction::Kill(JobId(4)));
        assert_eq!(screen.mode, Mode::List);
    }

    #[test]
    fn jobs_are_sorted_and_filtered() {
        let mut screen = Screen::default();
        let all = snapshot();
        assert_eq!(screen.order(&all), [0, 1]);
        keys(&mut screen, &[KeyCode::Char('r')]);
        assert_eq!(screen.order(&all), [1, 0]);
        keys(&mut screen, &[KeyCode::Char('r'), KeyCode::Char('/'), KeyCode::Char('I')]);
        assert_eq!((screen.order(&all), screen.chosen(&all)), (vec![1], Some(JobId(4))));
        keys(&mut screen, &[KeyCode::Char('q'), KeyCode::Enter]);
        assert_eq!((screen.order(&all), screen.chosen(&all)), (vec![], None));
        keys(&mut screen, &[KeyCode::Char('/'), KeyCode::Esc]);
        for _ in 0..5 {
            keys(&mut screen, &[KeyCode::Char('s')]);
        }
        assert_eq!((screen.sort, screen.order(&all)), (Sort::Load, vec![0, 1]));
    }

    #[test]
    fn a_job_is_opened_and_left() {
        let mut screen = Screen::default();
        keys(&mut screen, &[KeyCode::Char('j'), KeyCode::Char('j'), KeyCode::Enter]);
        assert_eq!((screen.mode, screen.selected), (Mode::Job(JobId(4)), 1));
        assert_eq!(keys(&mut screen, &[KeyCode::Esc]), KeyAction::Draw);
        assert_eq!(keys(&mut screen, &[KeyCode::Char('?'), KeyCode::Esc]), KeyAction::Draw);
        assert_eq!(keys(&mut screen, &[KeyCode::Esc]), KeyAction::Quit);
        assert_eq!(screen.key(KeyCode::Char('c'), true, &snapshot()), KeyAction::Quit);
    }
}
