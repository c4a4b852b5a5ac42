//! TLS between a head that waits and the one that leads: both show the head's certificate.

use std::io;
use std::sync::Arc;

use kumi_control::copying;
use rustls::{ClientConfig, ServerConfig};

use super::{Credentials, Identity};

/// What both sides go by, made from what they go by otherwise.
pub(super) fn between_heads(
    mut client: ClientConfig,
    mut server: ServerConfig,
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    client.alpn_protocols = vec![copying::PROTOCOL.to_vec()];
    server.alpn_protocols = vec![copying::PROTOCOL.to_vec()];
    (Arc::new(client), Arc::new(server))
}

impl Credentials {
    /// Authenticates a connection of a head that waits to the one that leads.
    ///
    /// # Errors
    /// When the peer is no head, or does not know this protocol, or the connection fails.
    pub(crate) async fn connect_to_leader<S>(
        &self,
        stream: S,
    ) -> io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let connector = tokio_rustls::TlsConnector::from(self.loaded().copies.0);
        let stream = connector.connect(Identity::Head.server_name(), stream).await?;
        if stream.get_ref().1.alpn_protocol() != Some(copying::PROTOCOL) {
            let text = "the head that leads is of an earlier version, which copies no output";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(stream)
    }
}
