//! `kumi top`: jobs, nodes and ranks with their load, live.

mod snapshot;
mod view;

use crate::cli::TopArgs;
use crate::context::Context;
use crate::error::Error;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use kumi_node::client::{Client, ClientError};
use ratatui::DefaultTerminal;
use snapshot::Snapshot;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two screens.
const REFRESH: Duration = Duration::from_millis(250);
/// Time between two checks of the keyboard.
const KEYS: Duration = Duration::from_millis(25);
/// Time for the head to answer until the screen shows that it is late.
const ANSWER: Duration = Duration::from_secs(2);

/// Runs the command.
pub async fn run(context: &Context, args: &TopArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
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
    let mut live =
        LiveScreen { context, client: Some(client), snapshot: first, trouble: None, first_row: 0 };
    let result = live.run(&mut terminal, &mut interrupts).await;
    ratatui::restore();
    result
}

/// The screen and its source.
struct LiveScreen<'c> {
    context: &'c Context,
    client: Option<Client>,
    snapshot: Snapshot,
    /// Reason why the screen is out of date.
    trouble: Option<String>,
    /// How far the user has scrolled.
    first_row: u16,
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
                self.refresh().await?;
                self.draw(terminal)?;
            }
            while event::poll(Duration::ZERO).map_err(Error::Terminal)? {
                match event::read().map_err(Error::Terminal)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        let control = key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                            KeyCode::Char('c') if control => return Ok(()),
                            KeyCode::Up => self.first_row = self.first_row.saturating_sub(1),
                            KeyCode::Down => self.first_row = self.first_row.saturating_add(1),
                            KeyCode::Home => self.first_row = 0,
                            _ => {}
                        }
                        self.draw(terminal)?;
                    }
                    Event::Resize(..) => self.draw(terminal)?,
                    _ => {}
                }
            }
            tokio::select! {
                number = interrupts.next() => return Err(Error::Silent(exit_code(number))),
                () = tokio::time::sleep(KEYS) => {}
            }
        }
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> Result<(), Error> {
        let (trouble, row) = (self.trouble.as_deref(), self.first_row);
        terminal
            .draw(|frame| view::draw(frame, &self.snapshot, trouble, row, output::wall_ms()))
            .map(drop)
            .map_err(Error::Terminal)
    }

    /// Takes a new snapshot. If the head is away, the old one stays, with a message.
    async fn refresh(&mut self) -> Result<(), Error> {
        let taken = tokio::time::timeout(ANSWER, async {
            let mut client = match self.client.take() {
                Some(client) => client,
                None => self.context.connect().await?,
            };
            let snapshot = Snapshot::take(&mut client).await?;
            Ok::<_, Error>((client, snapshot))
        });
        match taken.await {
            Ok(Ok((client, snapshot))) => {
                self.client = Some(client);
                self.snapshot = snapshot;
                self.trouble = None;
            }
            Ok(Err(Error::Client(error @ (ClientError::Lost | ClientError::NotRunning(_))))) => {
                self.trouble = Some(error.to_string());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => self.trouble = Some("the head does not answer".to_owned()),
        }
        Ok(())
    }
}
