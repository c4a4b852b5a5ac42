//! Where browsers see the cluster: table `[web]` of cluster.toml.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid, listening_address};

/// Where browsers see the cluster, beside the local socket to which `kumi web` connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Web {
    /// Where the head listens for browsers, `PORT` or `ADDRESS:PORT`; nowhere if it is not given. Connections are encrypted
    /// unless the address is a loopback address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
}

impl Web {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let address = self.address(IpAddr::from([127, 0, 0, 1]));
        match address {
            Ok(_) => Ok(()),
            Err(_) => invalid(format!(
                "listen under [web] is {:?}, which is neither a port from 1 to 65535 nor an address with one, as 127.0.0.1:8443",
                self.listen.as_deref().unwrap_or_default()
            )),
        }
    }

    /// Where the head listens. A port alone goes with the head's address.
    ///
    /// # Errors
    /// It is neither a port nor an address with a port.
    pub fn address(&self, head: IpAddr) -> Result<Option<SocketAddr>, ConfigError> {
        self.listen.as_deref().map(|text| listening_address(text, head)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn the_file_says_where_browsers_connect() {
        let head = IpAddr::from([10, 0, 0, 1]);
        let at =
            |text: &str| parse(&format!("{GOOD}{text}")).map(|it| it.web.address(head).unwrap());
        assert_eq!(at("").unwrap(), None);
        let port = at("[web]\nlisten = \"8443\"\n").unwrap().unwrap();
        assert_eq!(port.to_string(), "10.0.0.1:8443");
        let own = at("[web]\nlisten = \"127.0.0.1:80\"\n").unwrap().unwrap();
        assert_eq!(own.to_string(), "127.0.0.1:80");
        let error = at("[web]\nlisten = \"everywhere\"\n").unwrap_err().to_string();
        assert!(error.contains("listen under [web] is \"everywhere\""), "{error}");
    }
}
