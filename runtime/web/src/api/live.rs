//! Pictures as server-sent events. A stream holds the picture that it writes and looks for the newest when that is written, so
//! its memory does not depend on how slow its browser is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use tokio::sync::watch;

use crate::routes::{App, Refused, session};
use crate::{Ask, Picture, Question, Visitor, Watching};

/// Between signs of life where no pictures come.
const ALIVE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(crate) struct LiveQuery {
    #[serde(default)]
    slices: bool,
}

/// A browser that watches.
struct Watch {
    app: Arc<App>,
    pictures: watch::Receiver<Arc<Picture>>,
    visitor: Visitor,
    /// Pictures end with it.
    session: String,
    slices: bool,
    _token: Watching,
}

/// Pictures until the browser goes, or its session ends.
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    headers: HeaderMap,
    Query(query): Query<LiveQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let token = app.shared.watchers.admit(visitor.user.uid, query.slices).ok_or_else(|| {
        let message = "too many browsers watch the cluster, or too many of yours; close one";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, message)
    })?;
    // The head may be between two rare looks. If it does not take the hint it has enough to do.
    let hint = Question { user: visitor.user.clone(), ask: Ask::Picture };
    let _ = app.shared.questions.try_send(hint);
    let mut pictures = app.shared.pictures.clone();
    pictures.mark_changed();
    // The visitor came of it.
    let session = session(&headers, &app.shared.cluster).unwrap_or_default();
    let watch = Watch { app, pictures, visitor, session, slices: query.slices, _token: token };
    Ok(Sse::new(unfold(watch, next)).keep_alive(KeepAlive::new().interval(ALIVE)))
}

async fn next(mut watch: Watch) -> Option<(Result<Event, Infallible>, Watch)> {
    watch.pictures.changed().await.ok()?;
    if !watch.app.shared.sessions.is_open(&watch.session) {
        return None;
    }
    let picture = Arc::clone(&watch.pictures.borrow_and_update());
    match picture.text(&watch.visitor.user, watch.slices) {
        Ok(text) => Some((Ok(Event::default().data(text)), watch)),
        Err(error) => {
            tracing::error!(%error, "a picture cannot be written as JSON");
            None
        }
    }
}
