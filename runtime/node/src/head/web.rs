//! The head's side of the web server: questions of browsers, tickets, and where it listens.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, ClientRequest, Refusal, RefusalKind, User};
use kumi_sched::JobId;
use kumi_web::history::HistoryReader;
use kumi_web::{Ask, Limits, Listener, Output, Question, Server, Sessions, Visitor};
use tokio::sync::{mpsc, oneshot};

use super::HeadDaemon;
use super::monitor::Monitor;
use crate::client::refusal;
use crate::config::ClusterConfig;
use crate::exit::{ExitCode, Failure};
use crate::listening;
use crate::node::setup::listen_unix;
use crate::{paths, tls};

/// Most questions that wait for the main loop.
const MOST_QUESTIONS: usize = 64;

/// The web server and its questions.
#[derive(Debug)]
pub(super) struct WebService {
    questions: mpsc::Receiver<Question>,
    /// Browsers that wait for an answer of the state machine.
    waiting: BTreeMap<ClientId, oneshot::Sender<ClientReply>>,
    sessions: Arc<Sessions>,
    /// Where browsers reach it beside the local socket.
    url: Option<String>,
    _server: Server,
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(ExitCode::MachineLimits, format!("the web server cannot be started: {error}"))
}

/// The listener of an address; encrypted, unless the address is the machine's own.
async fn network(dir: &Path, address: SocketAddr) -> Result<Listener, Failure> {
    let listener =
        listening::listen(address, None).await?.into_std().map_err(|error| failed(&error))?;
    let tls = if address.ip().is_loopback() { None } else { Some(tls::web_server(dir)?) };
    Ok(Listener::Network { listener, address, tls })
}

impl WebService {
    /// Starts the server for the cluster in `dir`.
    ///
    /// # Errors
    /// It cannot listen where it should, or has no certificate.
    pub(super) async fn start(
        dir: &Path,
        (config, own): (&ClusterConfig, IpAddr),
        monitor: &Monitor,
    ) -> Result<Self, Failure> {
        let socket =
            listen_unix(&paths::web_socket(dir))?.into_std().map_err(|error| failed(&error))?;
        let mut listeners = vec![Listener::Local(socket)];
        let mut url = None;
        if let Some(address) = config.web.address(own)? {
            let scheme = if address.ip().is_loopback() { "http" } else { "https" };
            url = Some(format!("{scheme}://{address}"));
            listeners.push(network(dir, address).await?);
        }
        let (sender, questions) = mpsc::channel(MOST_QUESTIONS);
        let sessions = Arc::new(Sessions::default());
        let reader = || HistoryReader::new(&paths::history(dir), config.node_count());
        let shared = kumi_web::Shared {
            cluster: config.name.clone(),
            sessions: Arc::clone(&sessions),
            pictures: monitor.pictures(),
            questions: sender,
            watchers: monitor.watchers(),
            history: monitor.has_history().then(reader),
        };
        let server =
            Server::start(shared, listeners, Limits::default()).map_err(|error| failed(&error))?;
        Ok(Self { questions, waiting: BTreeMap::new(), sessions, url, _server: server })
    }

    /// The next question; for ever none if the server has ended.
    pub(super) async fn question(&mut self) -> Question {
        match self.questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        }
    }

    /// A ticket for a browser of a user.
    fn ticket(&self, user: User, act: bool) -> ClientReply {
        match self.sessions.issue(Visitor { user, act }) {
            Ok(ticket) => ClientReply::WebTicket { ticket, url: self.url.clone() },
            Err(error) => {
                ClientReply::Refused(refusal(RefusalKind::NoResources, error.to_string()))
            }
        }
    }

    /// Whether this client is a browser that waits.
    pub(super) fn waits(&self, client: ClientId) -> bool {
        self.waiting.contains_key(&client)
    }

    /// Hands a reply to the browser that waits for it. Returns the reply if that is no browser's.
    pub(super) fn reply(&mut self, client: ClientId, reply: ClientReply) -> Option<ClientReply> {
        match self.waiting.remove(&client) {
            Some(browser) => {
                // A browser that has gone needs no answer.
                let _ = browser.send(reply);
                None
            }
            None => Some(reply),
        }
    }

    /// The clients of browsers that wait no longer.
    fn take_gone(&mut self) -> Vec<ClientId> {
        let gone = self.waiting.iter().filter(|(_, browser)| browser.is_closed());
        let gone: Vec<ClientId> = gone.map(|(&client, _)| client).collect();
        for client in &gone {
            self.waiting.remove(client);
        }
        gone
    }
}

/// Answers a browser. One that has gone needs no answer.
fn answer<T>(browser: oneshot::Sender<T>, value: T) {
    let _ = browser.send(value);
}

impl HeadDaemon {
    /// A user wants a ticket.
    pub(super) fn ticket(&self, client: ClientId, user: User, act: bool) {
        self.clients.reply(client, self.web.ticket(user, act));
    }

    /// A browser asks something.
    pub(super) fn question(&mut self, question: Question) {
        let Question { user, ask } = question;
        match ask {
            Ask::Client(request, browser) => self.browser_request(user, request, browser),
            Ask::Jobs(query, browser) => answer(browser, self.head.borrow().page(&user, &query)),
            Ask::Job(job, browser) => answer(browser, self.head.borrow().job_for(&user, job)),
            Ask::Output(job, from, browser) => self.output(&user, job, from, browser),
            Ask::Picture => self.monitor.hurry(),
        }
    }

    fn browser_request(
        &mut self,
        user: User,
        request: ClientRequest,
        browser: oneshot::Sender<ClientReply>,
    ) {
        for gone in self.web.take_gone() {
            self.handle(HeadEvent::ClientGone(gone));
        }
        let client = ClientId(self.shared.next_id());
        self.web.waiting.insert(client, browser);
        self.handle(HeadEvent::Client(client, user, request));
    }

    fn output(
        &mut self,
        user: &User,
        job: JobId,
        from: Option<u64>,
        browser: oneshot::Sender<Result<Output, Refusal>>,
    ) {
        match self.head.borrow().may_read(user, job) {
            Ok(()) => {
                let read = self.spools.part(job, from);
                // It may have to look through a long file.
                tokio::task::spawn_blocking(move || answer(browser, read()));
            }
            Err(refused) => answer(browser, Err(refused)),
        }
    }
}
