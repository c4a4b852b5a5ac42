//! Answers to browsers, in JSON.

pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod live;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use kumi_control::message::{ClientReply, ClientRequest, Refusal, RefusalKind};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::routes::{App, Refused, json};
use crate::{Ask, Question, Visitor, views};

/// How long the head may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Me<'a> {
    cluster: &'a str,
    user: &'a str,
    uid: u32,
    /// Whether it may stop and kill jobs.
    act: bool,
}

/// Who the browser acts for.
pub(crate) async fn me(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    let Visitor { user, act } = visitor;
    json(&Me { cluster: &app.shared.cluster, user: &user.name, uid: user.uid, act })
}

/// Asks the head, and waits for its answer.
async fn ask<T>(
    app: &App,
    visitor: &Visitor,
    make: impl FnOnce(oneshot::Sender<T>) -> Ask,
) -> Result<T, Refused> {
    let late = || Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the head does not answer");
    let (sender, answer) = oneshot::channel();
    let question = Question { user: visitor.user.clone(), ask: make(sender) };
    let waiting = async {
        app.shared.questions.send(question).await.map_err(|_| late())?;
        answer.await.map_err(|_| late())
    };
    tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| late())?
}

/// Asks the head as a client does.
async fn request(
    app: &App,
    visitor: &Visitor,
    request: ClientRequest,
) -> Result<ClientReply, Refused> {
    match ask(app, visitor, |answer| Ask::Client(request, answer)).await? {
        ClientReply::Refused(refusal) => Err(refused(&refusal)),
        reply => Ok(reply),
    }
}

/// A refusal of the head as HTTP says it.
fn refused(refusal: &Refusal) -> Refused {
    let status = match refusal.kind {
        RefusalKind::NoSuchJob | RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::NotPermitted => StatusCode::FORBIDDEN,
        RefusalKind::BadRequest => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refused::new(status, refusal.message.clone())
}

/// A reply of another kind than was asked for.
fn unexpected(reply: &ClientReply) -> Refused {
    tracing::error!(?reply, "the head answered a browser something else");
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the head answered something else")
}

/// The nodes, the timetable and the tree of queues.
pub(crate) async fn cluster(
    State(app): State<Arc<App>>,
    visitor: Visitor,
) -> Result<Response, Refused> {
    match request(&app, &visitor, ClientRequest::Cluster).await? {
        ClientReply::Cluster(status) => Ok(json(&views::cluster(&status))),
        other => Err(unexpected(&other)),
    }
}
