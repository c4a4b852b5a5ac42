//! What `kumi top` has asked the head and is not answered yet. Keys are read meanwhile, however long the head takes.

use super::rates::RateMeter;
use super::snapshot::Snapshot;
use crate::context::Context;
use crate::error::Error;
use crate::table;
use kumi_control::message::{ClientReply, ClientRequest, USUAL_GRACE};
use kumi_node::client::{Client, ClientError};
use kumi_sched::JobId;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Time between two checks of the keyboard.
const KEYS: Duration = Duration::from_millis(25);
/// Time for the head to answer until the screen shows that it is late.
const ANSWER: Duration = Duration::from_secs(2);

/// A snapshot, with the connection over which it came; none if the head is away.
pub type Taken = Result<Result<(Client, Snapshot), String>, Error>;

type Pending<'c, T> = Pin<Box<dyn Future<Output = T> + 'c>>;

/// Questions under way.
#[derive(Default)]
pub struct PendingRequests<'c> {
    snapshot: Option<Pending<'c, (RateMeter, Taken)>>,
    kill: Option<Pending<'c, Result<String, Error>>>,
}

/// What came next.
pub enum HeadAnswer {
    /// A snapshot, and the meter for the next one.
    Snapshot(Box<(RateMeter, Taken)>),
    /// What became of a kill.
    Killed(Result<String, Error>),
    /// Nothing, and it is time to look at the keyboard.
    Nothing,
}

impl<'c> PendingRequests<'c> {
    /// Asks for a snapshot, over this connection if there is one.
    pub fn ask_snapshot(&mut self, context: &'c Context, client: Option<Client>, meter: RateMeter) {
        self.snapshot = Some(Box::pin(take(context, client, meter)));
    }

    /// Has the head end a job, over a connection of its own: the answer comes when nothing of the job is left.
    pub fn ask_kill(&mut self, context: &'c Context, job: JobId) {
        let before = self.kill.take();
        self.kill = Some(Box::pin(async move {
            if let Some(before) = before {
                before.await?;
            }
            kill(context, job).await
        }));
    }

    /// The next answer, if one comes before the keyboard is to be looked at.
    pub async fn next(&mut self) -> HeadAnswer {
        tokio::select! {
            taken = of(&mut self.snapshot) => {
                self.snapshot = None;
                HeadAnswer::Snapshot(Box::new(taken))
            }
            killed = of(&mut self.kill) => {
                self.kill = None;
                HeadAnswer::Killed(killed)
            }
            () = tokio::time::sleep(KEYS) => HeadAnswer::Nothing,
        }
    }
}

async fn of<T>(pending: &mut Option<Pending<'_, T>>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn take(
    context: &Context,
    client: Option<Client>,
    mut meter: RateMeter,
) -> (RateMeter, Taken) {
    let taken = timeout(ANSWER, async {
        let mut client = match client {
            Some(client) => client,
            None => context.connect_silently().await?,
        };
        let snapshot = Snapshot::take_rates(&mut client, &mut meter).await?;
        Ok((client, snapshot))
    });
    let taken = match taken.await {
        Ok(Ok(taken)) => Ok(Ok(taken)),
        Ok(Err(error)) => absence(error).map(Err),
        Err(_) => Ok(Err("it does not answer".to_owned())),
    };
    (meter, taken)
}

async fn kill(context: &Context, job: JobId) -> Result<String, Error> {
    let killed = timeout(ANSWER, async {
        let mut client = context.connect_silently().await?;
        Ok::<_, Error>(client.ask(&ClientRequest::Kill { job, grace_ns: USUAL_GRACE }).await?)
    });
    match killed.await {
        Ok(Ok(ClientReply::Done)) => Ok(format!("job {job} is killed")),
        Ok(Ok(other)) => Err(Error::unexpected(&other)),
        Ok(Err(error)) => Ok(error.to_string()),
        Err(_) => Ok(format!("job {job} is to end, and is killed if it has not within 10s")),
    }
}

/// Why the head is away, if this says so: it may come back, or another one.
///
/// # Errors
/// It says something else.
fn absence(error: Error) -> Result<String, Error> {
    match error {
        Error::Client(ClientError::Lost) => Ok("the connection to it was lost".to_owned()),
        Error::Client(ClientError::NotRunning(_)) => Ok("it does not run".to_owned()),
        // A node's daemon that has no head says so, and a head that does not lead.
        Error::Client(ClientError::Refused(refusal)) => Ok(refusal.message),
        error => Err(error),
    }
}

/// The head is away.
#[derive(Debug)]
pub struct HeadAbsence {
    since: Instant,
    reason: String,
}

impl HeadAbsence {
    /// It was away when somebody looked at `now`; `before` is what was known.
    pub fn found(before: Option<Self>, reason: String, now: Instant) -> Self {
        Self { since: before.map_or(now, |before| before.since), reason }
    }

    /// In words: since when, and why.
    pub fn words(&self, now: Instant) -> String {
        let away = now.saturating_duration_since(self.since).as_millis();
        let away = table::elapsed(u64::try_from(away).unwrap_or(u64::MAX));
        format!("no head for {away}, jobs that run go on: {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::RefusalKind;
    use kumi_node::client::refusal;

    #[tokio::test(flavor = "current_thread")]
    async fn keys_are_read_while_the_head_is_silent() {
        let mut requests = PendingRequests {
            snapshot: Some(Box::pin(std::future::pending())),
            kill: Some(Box::pin(std::future::pending())),
        };
        assert!(matches!(requests.next().await, HeadAnswer::Nothing));
        assert!(requests.snapshot.is_some() && requests.kill.is_some(), "both are waited for");
        requests.kill = Some(Box::pin(async { Ok("killed".to_owned()) }));
        assert!(matches!(requests.next().await, HeadAnswer::Killed(Ok(_))));
        assert!(requests.kill.is_none() && requests.snapshot.is_some());
    }

    #[test]
    fn a_head_that_is_away_is_no_error() {
        let refused = |kind| Error::Client(ClientError::Refused(refusal(kind, "no head leads")));
        assert_eq!(absence(refused(RefusalKind::NodeLost)).unwrap(), "no head leads");
        assert!(absence(Error::Client(ClientError::Lost)).is_ok());
        assert!(absence(Error::Client(ClientError::NotRunning("x".into()))).is_ok());
        assert!(absence(Error::Client(ClientError::Version { theirs: 1 })).is_err());
        assert!(absence(Error::NoHome).is_err());
    }

    #[test]
    fn an_absence_lasts_from_its_first_sign() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let first = HeadAbsence::found(None, "lost".into(), begin);
        let later = HeadAbsence::found(Some(first), "no head leads".into(), after(3));
        assert_eq!(later.words(after(65)), "no head for 1m05s, jobs that run go on: no head leads");
    }
}
