//! `kumi top`: jobs, nodes and ranks with their load, live.

mod panels;
mod rates;
mod requests;
mod screen;
pub mod snapshot;
mod view;

use crate::context::{Context, head_is_silent};
use crate::error::Error;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;
use clap::Args;
use crossterm::event::{self, Event, KeyEventKind, KeyModifiers};
use kumi_node::client::{Client, telling};
use ratatui::DefaultTerminal;
use rates::RateMeter;
use requests::{HeadAbsence, HeadAnswer, PendingRequests, Taken};
use screen::{KeyAction, Screen};
use snapshot::Snapshot;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two screens.
const REFRESH: Duration = Duration::from_millis(250);

/// `kumi top`
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Print one plain text snapshot and exit
    #[arg(long)]
    pub once: bool,
    /// Print one snapshot as JSON and exit
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(context: &Context, args: &TopArgs) -> Result<(), Error> {
    let mut client = telling(head_is_silent, context.connect_silently()).await?;
    let first = Snapshot::take(&mut client).await?;
    if args.json {
        return output::json(&first.view(&context.places()));
    }
    if args.once {
        return output::text(&first.text(output::wall_ms()));
    }
    if !std::io::stdout().is_terminal() {
        return Err(Error::Terminal(std::io::Error::other("standard output is none")));
    }
    let mut interrupts = Interrupts::listen()?;
    let mut terminal = ratatui::try_init().map_err(Error::Terminal)?;
    let mut live = LiveScreen {
        context,
        requests: PendingRequests::default(),
        client: Some(client),
        snapshot: first,
        absence: None,
        screen: Screen::default(),
        meter: Some(RateMeter::default()),
    };
    let result = live.run(&mut terminal, &mut interrupts).await;
    ratatui::restore();
    result
}

/// The screen and its source.
struct LiveScreen<'c> {
    context: &'c Context,
    requests: PendingRequests<'c>,
    /// While no snapshot is asked for.
    client: Option<Client>,
    snapshot: Snapshot,
    /// The snapshot is of then.
    absence: Option<HeadAbsence>,
    /// What the keys have chosen.
    screen: Screen,
    /// While no snapshot is asked for.
    meter: Option<RateMeter>,
}

impl LiveScreen<'_> {
    async fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        interrupts: &mut Interrupts,
    ) -> Result<(), Error> {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next = Instant::now() + REFRESH;
                if let Some(meter) = self.meter.take() {
                    self.requests.ask_snapshot(self.context, self.client.take(), meter);
                }
                // How long the head is away changes without an answer.
                self.draw(terminal)?;
            }
            while event::poll(Duration::ZERO).map_err(Error::Terminal)? {
                match event::read().map_err(Error::Terminal)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        let control = key.modifiers.contains(KeyModifiers::CONTROL);
                        match self.screen.key(key.code, control, &self.snapshot) {
                            KeyAction::Draw => {}
                            KeyAction::Quit => return Ok(()),
                            KeyAction::Kill(job) => self.requests.ask_kill(self.context, job),
                        }
                        self.draw(terminal)?;
                    }
                    Event::Resize(..) => self.draw(terminal)?,
                    _ => {}
                }
            }
            let answer = tokio::select! {
                number = interrupts.next() => return Err(Error::Silent(exit_code(number))),
                answer = self.requests.next() => answer,
            };
            match answer {
                HeadAnswer::Snapshot(answer) => {
                    let (meter, taken) = *answer;
                    self.meter = Some(meter);
                    self.show(taken)?;
                    self.draw(terminal)?;
                }
                HeadAnswer::Killed(said) => {
                    self.screen.note = Some(said?);
                    self.draw(terminal)?;
                }
                HeadAnswer::Nothing => {}
            }
        }
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> Result<(), Error> {
        let absence = self.absence.as_ref().map(|absence| absence.words(Instant::now()));
        terminal
            .draw(|frame| {
                let absence = absence.as_deref();
                view::draw(frame, &self.snapshot, absence, &self.screen, output::wall_ms());
            })
            .map(drop)
            .map_err(Error::Terminal)
    }

    /// Shows a new snapshot. If the head is away, the old one stays, with the reason.
    fn show(&mut self, taken: Taken) -> Result<(), Error> {
        match taken? {
            Ok((client, snapshot)) => {
                self.client = Some(client);
                self.snapshot = snapshot;
                self.absence = None;
            }
            Err(reason) => {
                let found = HeadAbsence::found(self.absence.take(), reason, Instant::now());
                self.absence = Some(found);
            }
        }
        Ok(())
    }
}
