//! HTTP client of etcd's JSON gateway, with one request at a time.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::leadership::Leadership;
use super::{Etcd, EtcdError, code, tls};

/// Most bytes of an answer.
const MOST_ANSWER: usize = 64 << 20;

/// A connection to one of the endpoints, opened on demand.
pub struct Gateway {
    settings: Rc<Etcd>,
    leadership: Rc<Leadership>,
    tls: Option<TlsConnector>,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// The endpoint in use.
    at: usize,
    /// The user's token at etcd, if there is a user and it has logged in.
    token: Option<String>,
}

/// An endpoint in parts.
struct Endpoint<'a> {
    secure: bool,
    /// `HOST:PORT`.
    place: &'a str,
    host: &'a str,
}

fn endpoint(text: &str) -> Result<Endpoint<'_>, EtcdError> {
    let wrong = || EtcdError::Address(text.to_owned());
    let (secure, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(wrong()),
    };
    let place = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || place.contains(['/', '@', ' ']) || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(Endpoint { secure, place, host: host.trim_start_matches('[').trim_end_matches(']') })
}

impl Gateway {
    /// Checks the settings. Connects to nothing.
    ///
    /// # Errors
    /// An endpoint is not an address, or the files are unusable for TLS.
    pub fn new(settings: &Rc<Etcd>, leadership: &Rc<Leadership>) -> Result<Gateway, EtcdError> {
        let mut secure = false;
        for text in &settings.endpoints {
            secure |= endpoint(text)?.secure;
        }
        if settings.endpoints.is_empty() {
            return Err(EtcdError::Address(String::new()));
        }
        let tls = if secure {
            let identity = settings.identity.as_ref();
            let identity =
                identity.map(|(certificate, key)| (Path::new(certificate), Path::new(key)));
            let config = tls::config(settings.ca.as_deref(), identity)?;
            Some(TlsConnector::from(Arc::new(config)))
        } else {
            None
        };
        let (settings, leadership) = (Rc::clone(settings), Rc::clone(leadership));
        Ok(Gateway { settings, leadership, tls, sender: None, at: 0, token: None })
    }

    fn place(&self) -> &str {
        &self.settings.endpoints[self.at]
    }

    fn away(&self, why: &impl ToString) -> EtcdError {
        EtcdError::NoAnswer { endpoint: self.place().to_owned(), why: why.to_string() }
    }

    async fn connect(&mut self) -> Result<(), EtcdError> {
        let Endpoint { secure, place, host } = endpoint(self.place())?;
        let stream = TcpStream::connect(place).await.map_err(|error| self.away(&error))?;
        stream.set_nodelay(true).map_err(|error| self.away(&error))?;
        let sender = match (&self.tls, secure) {
            (Some(tls), true) => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|error| self.away(&error))?;
                let stream = tls.connect(name, stream).await;
                let stream = stream.map_err(|error| self.away(&tls::advice(&error)))?;
                begin(TokioIo::new(stream)).await
            }
            _ => begin(TokioIo::new(stream)).await,
        };
        self.sender = Some(sender.map_err(|error| self.away(&error))?);
        Ok(())
    }

    /// Sends one request. After an error that is not etcd's own, the next request goes to the next endpoint.
    ///
    /// # Errors
    /// [`EtcdError`]. After [`EtcdError::NoAnswer`] etcd may have carried out the request.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let result = self.post_as_user(path, body).await;
        if matches!(result, Err(EtcdError::NoAnswer { .. })) {
            self.sender = None;
            self.token = None;
            self.at = (self.at + 1) % self.settings.endpoints.len();
        }
        if result.is_err() {
            self.leadership.figures.failed();
        }
        result
    }

    async fn post_as_user(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        if !self.settings.user.is_empty() && self.token.is_none() {
            self.log_in().await?;
        }
        let result = self.post_once(path, body).await;
        match result {
            // The token has expired, or etcd has restarted.
            Err(EtcdError::Refused { code: code::NOBODY | code::INVALID, .. })
                if self.token.take().is_some() =>
            {
                self.log_in().await?;
                self.post_once(path, body).await
            }
            other => other,
        }
    }

    async fn log_in(&mut self) -> Result<(), EtcdError> {
        let Etcd { user, password, .. } = &*self.settings;
        let body = json!({ "name": user, "password": password });
        let answer = self.post_once("/v3/auth/authenticate", &body).await?;
        let token = answer["token"].as_str().map(str::to_owned);
        self.token = Some(token.ok_or_else(|| EtcdError::Answer("a token".to_owned()))?);
        Ok(())
    }

    async fn post_once(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let begin = Instant::now();
        self.leadership.figures.asked();
        let answer = match timeout(self.settings.patience, self.exchange(path, body)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.away(&"no answer in time")),
        };
        self.leadership.figures.answered(begin.elapsed());
        let (status, bytes) = answer;
        // A stream has one answer per line.
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let value: Value =
            serde_json::from_slice(line).map_err(|_| self.away(&format!("it says {status}")))?;
        let refusal = match (value.get("error"), status) {
            (None, StatusCode::OK) => return Ok(value),
            (Some(inner @ Value::Object(_)), _) => inner,
            _ => &value,
        };
        let text = ["message", "error"].iter().find_map(|key| refusal[*key].as_str());
        let number = ["code", "grpc_code"].iter().find_map(|key| refusal[*key].as_u64());
        let text = text.unwrap_or(status.as_str()).to_owned();
        match number.unwrap_or(0) {
            // This endpoint answers, but has no leader of its own or is too slow.
            4 | 14 => Err(self.away(&text)),
            code => Err(EtcdError::Refused { code, text }),
        }
    }

    async fn exchange(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Bytes), EtcdError> {
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.connect().await?;
        }
        let Endpoint { place, .. } = endpoint(self.place())?;
        let mut request =
            Request::post(path).header(HOST, place).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| self.away(&error))?;
        let Some(mut sender) = self.sender.take() else { return Err(self.away(&"no connection")) };
        sender.ready().await.map_err(|error| self.away(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| self.away(&error))?;
        let status = answer.status();
        let whole = Limited::new(answer.into_body(), MOST_ANSWER).collect().await;
        let whole = whole.map_err(|error| {
            if error.downcast_ref::<LengthLimitError>().is_some() {
                EtcdError::LongAnswer { endpoint: self.place().to_owned() }
            } else {
                self.away(&error)
            }
        })?;
        self.sender = Some(sender);
        Ok((status, whole.to_bytes()))
    }
}

/// Starts HTTP on a connection.
async fn begin<S>(stream: S) -> hyper::Result<SendRequest<Full<Bytes>>>
where
    S: Read + Write + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(stream).await?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to etcd ended");
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_looked_at() {
        for good in ["http://h:1", "https://h.example:2379/", "http://[::1]:2379"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        assert_eq!(endpoint("https://[::1]:2379").map(|it| it.host).ok(), Some("::1"));
        for bad in [
            "",
            "h:1",
            "ftp://h:1",
            "http://h",
            "http://:1",
            "http://u@h:1",
            "http://h:x",
            "http://h:1/x",
        ] {
            assert!(matches!(endpoint(bad), Err(EtcdError::Address(_))), "{bad}");
        }
    }
}
