//! Routes, and what holds for every answer: its headers, who may have it, and how long a request may be.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION,
    REFERRER_POLICY, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::connections::Peer;
use crate::page::{FILES, INDEX, StaticFile};
use crate::{Shared, Visitor, api};

/// Most bytes of a request's body. No request needs one.
const MOST_BODY: u64 = 4 << 10;
/// Everything comes from here, and nothing else may be shown around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A page of another origin cannot set it without asking first, and is never permitted to.
const OWN_REQUEST: &str = "x-kumi-request";

/// What handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) shared: Arc<Shared>,
    /// Whether connections are encrypted.
    pub(crate) secure: bool,
    /// Names by which browsers reach it; any if there are none.
    pub(crate) hosts: Vec<String>,
}

/// Refusal of a request, as JSON with a sentence.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

#[derive(Serialize)]
struct RefusedText<'a> {
    error: &'a str,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self(status, message.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, json(&RefusedText { error: &self.1 })).into_response()
    }
}

/// An answer in JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Name of the session's cookie.
fn cookie_name(cluster: &str) -> String {
    format!("kumi-{cluster}")
}

/// The session of a request.
pub(crate) fn session(headers: &HeaderMap, cluster: &str) -> Option<String> {
    let name = cookie_name(cluster);
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let shared = &app.shared;
        let by = Peer::user(&parts.extensions);
        let known = session(&parts.headers, &shared.cluster)
            .and_then(|session| shared.sessions.visitor(&session))
            .filter(|visitor: &Self| visitor.may_come(by));
        known.ok_or_else(|| {
            Refused::new(
                StatusCode::UNAUTHORIZED,
                "the browser has no session, or it is over; run `kumi web` and open the address that it prints",
            )
        })
    }
}

#[derive(Deserialize)]
struct Login {
    ticket: String,
}

/// Turns a ticket into a session, and goes to the page.
async fn login(
    State(app): State<Arc<App>>,
    Query(login): Query<Login>,
    extensions: Extensions,
) -> Result<Response, Refused> {
    let by = Peer::user(&extensions);
    let session = app.shared.sessions.redeem(&login.ticket, by).ok_or_else(|| {
        Refused::new(
            StatusCode::FORBIDDEN,
            "the ticket is unknown, was used, is older than 5 minutes or another user's; run `kumi web` again",
        )
    })?;
    let secure = if app.secure { "; Secure" } else { "" };
    let name = cookie_name(&app.shared.cluster);
    let cookie = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}");
    Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie.as_str()), (LOCATION, "/")]).into_response())
}

async fn logout(State(app): State<Arc<App>>, headers: HeaderMap) -> StatusCode {
    if let Some(session) = session(&headers, &app.shared.cluster) {
        app.shared.sessions.end(&session);
    }
    StatusCode::NO_CONTENT
}

fn file((_, kind, content): StaticFile) -> Response {
    ([(CONTENT_TYPE, kind)], content).into_response()
}

/// Refuses what no page of ours sends.
fn check(app: &App, request: &Request) -> Result<(), Refused> {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(CONTENT_LENGTH).map(str::parse::<u64>);
    let long = length.is_some_and(|length| length.is_ok_and(|bytes| bytes > MOST_BODY));
    if long || headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "no request needs such a body"));
    }
    let host = text(HOST).unwrap_or_default();
    if !app.hosts.is_empty() && !app.hosts.iter().any(|known| host_is(host, known)) {
        let message =
            "the cluster is not reached by this name; use the address that `kumi web` prints";
        return Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, message));
    }
    if !request.method().is_safe() && !headers.contains_key(OWN_REQUEST) {
        let message = format!("a request that changes something needs the header {OWN_REQUEST}");
        return Err(Refused::new(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

/// Whether `host`, perhaps with a port, is this name.
fn host_is(host: &str, name: &str) -> bool {
    let rest = host.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Checks each request, and gives each answer the headers that hold for all.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut answer = match check(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    let headers = answer.headers_mut();
    let mut fixed = vec![
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    if app.secure {
        fixed.push((STRICT_TRANSPORT_SECURITY, "max-age=31536000"));
    }
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn unknown() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "there is nothing at this address")
}

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route(INDEX.0, get(async || file(INDEX)))
        .route("/login", get(login))
        .route("/api/logout", post(logout))
        .route("/api/me", get(api::me))
        .route("/api/live", get(api::live::stream))
        .route("/api/cluster", get(api::cluster))
        .route("/api/history", get(api::history::rows))
        .route("/api/jobs", get(api::jobs::list))
        .route("/api/jobs/{job}", get(api::jobs::one))
        .route("/api/jobs/{job}/output", get(api::jobs::output))
        .route("/api/jobs/{job}/ranks", get(api::jobs::ranks))
        .route("/api/jobs/{job}/waits", get(api::jobs::waits))
        .route("/api/jobs/{job}/kill", post(api::jobs::kill))
        .route("/api/jobs/{job}/signal/{signal}", post(api::jobs::signal));
    for (path, kind, content) in FILES {
        router = router.route(path, get(async move || file((path, kind, content))));
    }
    router.fallback(unknown).layer(from_fn_with_state(Arc::clone(&app), guard)).with_state(app)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_whole() {
        assert!(host_is("localhost:80", "localhost") && host_is("[::1]", "[::1]"));
        assert!(!host_is("localhost.evil:80", "localhost") && !host_is("", "localhost"));
    }

    #[test]
    fn the_cookie_of_this_cluster_counts() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("kumi-b=2; x"));
        headers.append(COOKIE, HeaderValue::from_static("a=1; kumi-a = 3"));
        assert_eq!(session(&headers, "a").as_deref(), Some("3"));
        assert_eq!(session(&headers, "c"), None);
    }
}
