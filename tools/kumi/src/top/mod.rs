//! `kumi top`: jobs, nodes and ranks with their load, live.

mod panels;
mod rates;
mod screen;
pub mod snapshot;
mod view;

use crate::context::{Context, head_is_silent};
use crate::error::Error;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;
use clap::Args;
use crossterm::event::{self, Event, KeyEventKind, KeyModifiers};
use kumi_control::message::{ClientReply, ClientRequest, USUAL_GRACE};
use kumi_node::client::{Client, ClientError, telling};
use kumi_sched::JobId;
use ratatui::DefaultTerminal;
use rates::RateMeter;
use screen::{KeyAction, Screen};
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
        client: Some(client),
        snapshot: first,
        trouble: None,
        screen: Screen::default(),
        meter: RateMeter::default(),
    };
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
    /// What the keys have chosen.
    screen: Screen,
    meter: RateMeter,
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
                        match self.screen.key(key.code, control, &self.snapshot) {
                            KeyAction::Draw => {}
                            KeyAction::Quit => return Ok(()),
                            KeyAction::Kill(job) => self.kill(job).await?,
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
        let trouble = self.trouble.as_deref();
        terminal
            .draw(|frame| {
                view::draw(frame, &self.snapshot, trouble, &self.screen, output::wall_ms());
            })
            .map(drop)
            .map_err(Error::Terminal)
    }

    /// Has the head end a job, over a connection of its own: the answer comes when nothing of the job is left.
    async fn kill(&mut self, job: JobId) -> Result<(), Error> {
        let killed = tokio::time::timeout(ANSWER, async {
            let mut client = self.context.connect_silently().await?;
            Ok::<_, Error>(client.ask(&ClientRequest::Kill { job, grace_ns: USUAL_GRACE }).await?)
        });
        self.screen.note = Some(match killed.await {
            Ok(Ok(ClientReply::Done)) => format!("job {job} is killed"),
            Ok(Ok(other)) => return Err(Error::unexpected(&other)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("job {job} is to end, and is killed if it has not within 10s"),
        });
        Ok(())
    }

    /// Takes a new snapshot. If the head is away, the old one stays, with a message.
    async fn refresh(&mut self) -> Result<(), Error> {
        let taken = tokio::time::timeout(ANSWER, async {
            let mut client = match self.client.take() {
                Some(client) => client,
                None => self.context.connect_silently().await?,
            };
            let snapshot = Snapshot::take_rates(&mut client, &mut self.meter).await?;
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
