//! Client of a cluster's sockets, for the `kumi` command and for tests.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kumi_control::compat::{OLDEST_VERSION, Versioned, Versions, for_version};
use kumi_control::message::{
    CONTROL_VERSION, ClientReply, ClientRequest, ClusterStatus, HeadStatus, HeadTroubles, JobList,
    JobsPage, JobsQuery, Refusal, RefusalKind, UsagePage, UsageQuery, UsageRow,
};
use kumi_control::shares::SharesReport;
use kumi_sched::{JobId, NodeId};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::exit::ExitCode;
use crate::frame::{self, FrameError};
use crate::paths;

/// Why talking to the cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens.
    #[error("the cluster does not run (nothing answers at {0}); start it with `kumi cluster up`")]
    NotRunning(PathBuf),
    /// The socket cannot be used.
    #[error("{path} cannot be used: {source}; check its permissions")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// The head is another version.
    #[error(
        "the head speaks version {theirs} and this command {}; use the `kumi` that belongs to the cluster",
        Versions::OURS
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The head is of an earlier version, which does not have this.
    #[error(
        "the head speaks version {theirs} of the control protocol, which does not know this request; upgrade Kumi on the head's machine"
    )]
    Earlier {
        /// Its version.
        theirs: u32,
    },
    /// The head refused.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The connection ended where an answer was due.
    #[error("the connection to the head was lost; jobs that run go on meanwhile, try again")]
    Lost,
    /// A request is too long to send.
    #[error("the request is too long ({0}); shorten arguments or environment")]
    TooLong(FrameError),
    /// Something that is not the protocol.
    #[error(
        "the head sent something that is not understood ({0}); use the `kumi` that belongs to the cluster"
    )]
    Protocol(String),
}

impl ClientError {
    /// The exit code for it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotRunning(_) | Self::Lost => ExitCode::Unavailable,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::NotPermitted
            }
            Self::Connect { .. } => ExitCode::Io,
            Self::Version { .. } | Self::Earlier { .. } => ExitCode::Version,
            Self::Refused(refusal) => refusal.into(),
            Self::TooLong(_) => ExitCode::Usage,
            Self::Protocol(_) => ExitCode::Internal,
        }
    }
}

fn from_frame(error: &FrameError) -> ClientError {
    match error {
        FrameError::Io(_) | FrameError::Truncated => ClientError::Lost,
        FrameError::TooLong { .. } | FrameError::Malformed(_) => {
            ClientError::Protocol(error.to_string())
        }
    }
}

/// The sending half: requests.
#[derive(Debug)]
pub struct Requests {
    write: OwnedWriteHalf,
    /// What the head speaks.
    version: u32,
}

impl Requests {
    /// Sends a request.
    ///
    /// # Errors
    /// When it is too long, the head does not know it, or the connection was lost.
    pub async fn send(&mut self, request: &ClientRequest) -> Result<(), ClientError> {
        let told = for_version(request, self.version);
        let told = told.ok_or(ClientError::Earlier { theirs: self.version })?;
        let bytes = frame::encode(&*told, frame::CLIENT_LIMIT).map_err(ClientError::TooLong)?;
        self.write.write_all(&bytes).await.map_err(|_| ClientError::Lost)
    }
}

/// The receiving half: replies. Receiving is not cancel-safe: do not drop a `next` that is under
/// way in a `select!` unless the connection is dropped too; give it a task of its own.
#[derive(Debug)]
pub struct Replies(tokio::io::BufReader<OwnedReadHalf>);

impl Replies {
    /// The next reply; `None` when the head closed the connection.
    ///
    /// # Errors
    /// When the connection failed or what comes is not the protocol. A `ClientReply::Refused` is
    /// returned as a reply.
    pub async fn next(&mut self) -> Result<Option<ClientReply>, ClientError> {
        frame::read(&mut self.0, frame::LINK_LIMIT).await.map_err(|error| from_frame(&error))
    }
}

/// A connection to the head, directly or through a node's daemon.
#[derive(Debug)]
pub struct Client {
    requests: Requests,
    replies: Replies,
    /// Called when an answer takes long.
    on_silence: Option<fn()>,
}

/// Without an answer for so long, whoever waits is to be told.
pub const ANSWER: Duration = Duration::from_secs(1);

/// Waits for an answer of the head; calls `tell` once if there is none for [`ANSWER`].
pub async fn telling<T>(tell: impl FnOnce(), answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Ok(answered) = tokio::time::timeout(ANSWER, &mut answer).await {
        return answered;
    }
    tell();
    answer.await
}

impl Client {
    /// Connects to the cluster in `dir`: by the head's socket, or by that of any of the first
    /// `nodes` nodes if the head is not on this machine, and exchanges versions.
    ///
    /// # Errors
    /// When nothing listens, or the versions differ.
    pub async fn connect(dir: &Path, nodes: u32) -> Result<Self, ClientError> {
        match Self::connect_to(&paths::head_socket(dir)).await {
            Err(ClientError::NotRunning(path)) => {
                for node in 0..nodes {
                    let socket = paths::node_socket(dir, NodeId(node));
                    match Self::connect_to(&socket).await {
                        Err(ClientError::NotRunning(_)) => {}
                        other => return other,
                    }
                }
                Err(ClientError::NotRunning(path))
            }
            other => other,
        }
    }

    /// Connects to the socket at `path` and exchanges versions.
    ///
    /// # Errors
    /// As `connect`.
    pub async fn connect_to(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).await.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(path.to_owned())
            }
            _ => ClientError::Connect { path: path.to_owned(), source },
        })?;
        Self::greet(stream).await
    }

    /// Exchanges versions.
    async fn greet(stream: UnixStream) -> Result<Self, ClientError> {
        let (read, write) = stream.into_split();
        let replies = Replies(tokio::io::BufReader::with_capacity(64 << 10, read));
        let requests = Requests { write, version: CONTROL_VERSION };
        let mut client = Self { requests, replies, on_silence: None };
        let mut answer = client.offer(CONTROL_VERSION).await;
        // A head of the version before takes no other. It may take that one.
        if let Ok(ClientReply::Refused(refusal)) = &answer
            && refusal.kind == RefusalKind::Version
        {
            let again = client.offer(OLDEST_VERSION).await;
            if matches!(again, Ok(ClientReply::Welcome { .. })) {
                answer = again;
            }
        }
        match answer? {
            ClientReply::Welcome { version } if Versions::OURS.include(version) => {
                client.requests.version = version;
                Ok(client)
            }
            ClientReply::Welcome { version } => Err(ClientError::Version { theirs: version }),
            ClientReply::Refused(refusal) => Err(ClientError::Refused(refusal)),
            other => Err(ClientError::Protocol(format!("{other:?} instead of a welcome"))),
        }
    }

    /// Offers a version.
    async fn offer(&mut self, version: u32) -> Result<ClientReply, ClientError> {
        let greeted = self.send(&ClientRequest::Hello { version }).await;
        let answer = self.next().await;
        // A node without a head refuses at once, and may have closed the connection before the greeting: the reason is there.
        if let Ok(Some(ClientReply::Refused(refusal))) = answer {
            return Ok(ClientReply::Refused(refusal));
        }
        greeted?;
        answer?.ok_or(ClientError::Lost)
    }

    /// The version that the head and this client speak.
    pub fn version(&self) -> u32 {
        self.requests.version
    }

    /// Has this called whenever the answer of [`Client::ask`] takes longer than [`ANSWER`].
    pub fn on_silence(&mut self, tell: fn()) {
        self.on_silence = Some(tell);
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When it is too long or the connection was lost.
    pub async fn send(&mut self, request: &ClientRequest) -> Result<(), ClientError> {
        self.requests.send(request).await
    }

    /// The next reply; `None` when the head closed the connection.
    ///
    /// # Errors
    /// See [`Replies::next`].
    pub async fn next(&mut self) -> Result<Option<ClientReply>, ClientError> {
        self.replies.next().await
    }

    /// Sends a request and returns the one reply to it.
    ///
    /// # Errors
    /// When the connection fails, or with `Refused` when the head refuses.
    pub async fn ask(&mut self, request: &ClientRequest) -> Result<ClientReply, ClientError> {
        self.send(request).await?;
        let answered = match self.on_silence {
            Some(tell) => telling(tell, self.next()).await,
            None => self.next().await,
        };
        match answered? {
            Some(ClientReply::Refused(refusal)) => Err(ClientError::Refused(refusal)),
            Some(reply) => Ok(reply),
            None => Err(ClientError::Lost),
        }
    }

    /// The cluster as its head sees it, with the timetables of so many nodes.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn status(&mut self, columns: u32) -> Result<ClusterStatus, ClientError> {
        match self.ask(&ClientRequest::Overview { columns }).await? {
            ClientReply::Cluster(status) => Ok(status),
            other => Err(ClientError::Protocol(format!("{other:?} instead of a status"))),
        }
    }

    /// The heads, if there are several. One of an earlier version does not tell.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn heads(&mut self) -> Result<Vec<HeadStatus>, ClientError> {
        let request = ClientRequest::Heads;
        if self.version() < request.since() {
            return Ok(Vec::new());
        }
        match self.ask(&request).await? {
            ClientReply::Heads(heads) => Ok(heads),
            other => Err(ClientError::Protocol(format!("{other:?} instead of heads"))),
        }
    }

    /// What the head cannot write now; none of one of an earlier version, which does not tell.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn troubles(&mut self) -> Result<Option<HeadTroubles>, ClientError> {
        let request = ClientRequest::Troubles;
        if self.version() < request.since() {
            return Ok(None);
        }
        match self.ask(&request).await? {
            ClientReply::Troubles(troubles) => Ok(Some(troubles)),
            other => Err(ClientError::Protocol(format!("{other:?} instead of troubles"))),
        }
    }

    /// All jobs of a query, ascending, page by page. Jobs that come or end meanwhile may be missing or not.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn jobs(&mut self, query: JobsQuery) -> Result<JobList, ClientError> {
        let (mut query, mut all) = (query, JobList::default());
        loop {
            let JobsPage { list, more } = match self
                .ask(&ClientRequest::Jobs(query.clone()))
                .await?
            {
                ClientReply::Jobs(page) => page,
                other => return Err(ClientError::Protocol(format!("{other:?} instead of jobs"))),
            };
            query.before = list.records.first().map(|record| record.spec.job);
            let whole = !more || query.before.is_none();
            all = list.followed_by(all);
            if whole {
                return Ok(all);
            }
        }
    }

    /// What users have spent, those first whose jobs come first.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn shares(&mut self) -> Result<SharesReport, ClientError> {
        match self.ask(&ClientRequest::Shares).await? {
            ClientReply::Shares(report) => Ok(report),
            other => Err(ClientError::Protocol(format!("{other:?} instead of shares"))),
        }
    }

    /// All rows of a query, by key, ascending, page by page.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn usage(&mut self, query: UsageQuery) -> Result<Vec<UsageRow>, ClientError> {
        let (mut query, mut all) = (query, Vec::new());
        loop {
            let UsagePage { mut rows, more } = match self
                .ask(&ClientRequest::Usage(query.clone()))
                .await?
            {
                ClientReply::Usage(page) => page,
                other => return Err(ClientError::Protocol(format!("{other:?} instead of usage"))),
            };
            query.before = rows.first().map(|row| row.key);
            let whole = !more || query.before.is_none();
            rows.append(&mut all);
            all = rows;
            if whole {
                return Ok(all);
            }
        }
    }

    /// One job, alone in its list, which is empty if there is no such job for this user.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn job(&mut self, job: JobId) -> Result<JobList, ClientError> {
        match self.ask(&ClientRequest::Jobs(JobsQuery::job(job))).await? {
            ClientReply::Jobs(JobsPage { list, .. }) => {
                let found = list.records.first().is_some_and(|record| record.spec.job == job);
                Ok(if found { list } else { JobList::default() })
            }
            other => Err(ClientError::Protocol(format!("{other:?} instead of a job"))),
        }
    }

    /// The two halves, to be used by two tasks.
    pub fn split(self) -> (Requests, Replies) {
        (self.requests, self.replies)
    }
}

/// A refusal made on this side of the wire.
pub fn refusal(kind: RefusalKind, message: impl Into<String>) -> Refusal {
    Refusal { kind, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_refusal_is_heard_from_who_is_gone_already() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let reply = ClientReply::Refused(refusal(RefusalKind::NodeLost, "no head"));
        frame::write(&mut there, &reply, frame::LINK_LIMIT).await.unwrap();
        drop(there);
        let greeted = Client::greet(here).await;
        let Err(ClientError::Refused(told)) = greeted else { panic!("{greeted:?}") };
        assert_eq!(told.message, "no head");
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(matches!(Client::greet(here).await, Err(ClientError::Lost)));
    }

    /// What a head answers to each hello, and what a client makes of it.
    async fn greeted(
        answer: impl Fn(u32) -> ClientReply,
    ) -> (Result<Client, ClientError>, Vec<u32>) {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut heard = Vec::new();
        let serving = async {
            loop {
                let hello = frame::read(&mut there, frame::CLIENT_LIMIT).await.unwrap();
                let Some(ClientRequest::Hello { version }) = hello else { panic!("{hello:?}") };
                heard.push(version);
                frame::write(&mut there, &answer(version), frame::LINK_LIMIT).await.unwrap();
            }
        };
        let greeted = tokio::select! {
            never = serving => never,
            greeted = Client::greet(here) => greeted,
        };
        (greeted, heard)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_head_of_the_version_before_is_offered_that_version() {
        let refused = |words: &str| ClientReply::Refused(refusal(RefusalKind::Version, words));
        let only_oldest = |version| match version {
            OLDEST_VERSION => ClientReply::Welcome { version },
            _ => refused("another"),
        };
        let (client, heard) = greeted(only_oldest).await;
        assert_eq!(client.unwrap().version(), OLDEST_VERSION);
        assert_eq!(heard, [CONTROL_VERSION, OLDEST_VERSION]);
        let (client, heard) = greeted(|version| ClientReply::Welcome { version }).await;
        assert_eq!((client.unwrap().version(), heard.len()), (CONTROL_VERSION, 1));
        let (client, _) = greeted(|version| refused(&format!("not {version}"))).await;
        let error = client.unwrap_err();
        assert_eq!(error.to_string(), format!("not {CONTROL_VERSION}"));
        assert_eq!(error.exit_code(), ExitCode::Version);
        let (client, _) = greeted(|version| ClientReply::Welcome { version: version + 1 }).await;
        assert!(matches!(client, Err(ClientError::Version { .. })));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_the_head_does_not_know_is_not_sent() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let write = here.into_split().1;
        let mut requests = Requests { write, version: OLDEST_VERSION - 1 };
        let error = requests.send(&ClientRequest::Shares).await.unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Version);
        assert!(error.to_string().contains("upgrade Kumi on the head's machine"), "{error}");
        requests.version = OLDEST_VERSION;
        requests.send(&ClientRequest::Shares).await.unwrap();
        drop(requests);
        let mut read = async || frame::read::<ClientRequest>(&mut there, frame::CLIENT_LIMIT).await;
        assert_eq!(read().await.unwrap(), Some(ClientRequest::Shares));
        assert_eq!(read().await.unwrap(), None);
    }
}
