//! Configuration file of `grpc_initialize`: lines `key = value`.

use std::path::Path;
use std::time::Duration;

use kumi_call_client::Options;

use crate::code::{Code, Failure};

/// Default address of the server.
const DEFAULT_SERVER: &str = "127.0.0.1:7070";

/// Settings of calls.
#[derive(Debug, Clone)]
pub struct Config {
    /// Servers, in the order in which they are searched for a routine.
    pub servers: Vec<String>,
    /// Time limit of a call; `None`: the server's own limit.
    pub timeout: Option<Duration>,
    /// Settings of connections, with the user's token.
    pub options: Options,
}

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`Code::ConfigFileError`], with the variable.
    pub fn of_environment() -> Result<Config, Failure> {
        let servers = std::env::var("KUMI_CALL_SERVER").unwrap_or_default();
        let mut config =
            Config { servers: list(&servers), timeout: None, options: Options::from_env()? };
        if config.servers.is_empty() {
            config.servers.push(DEFAULT_SERVER.to_owned());
        }
        Ok(config)
    }

    /// Reads a file; missing settings come from the environment.
    ///
    /// # Errors
    /// [`Code::ConfigFileNotFound`], and [`Code::ConfigFileError`] with the line, or the variable.
    pub fn read(path: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let text = format!("the configuration {} cannot be read: {error}", path.display());
            Failure::new(Code::ConfigFileNotFound, text)
        })?;
        let mut config = Config::of_environment()?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                config.set(line, folder).map_err(|why| {
                    let text = format!("{}:{number}: {why}", path.display());
                    Failure::new(Code::ConfigFileError, text)
                })?;
            }
        }
        Ok(config)
    }

    fn set(&mut self, line: &str, folder: &Path) -> Result<(), String> {
        let Some((key, value)) = line.split_once('=') else {
            return Err(format!("`{line}` is not of the form `key = value`"));
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "server" | "servers" => {
                self.servers = list(value);
                if self.servers.is_empty() {
                    return Err(format!("`{key}` names no server: give HOST:PORT or unix:PATH"));
                }
            }
            "token_file" => {
                let path = folder.join(value);
                let token = std::fs::read_to_string(&path).map_err(|error| {
                    format!("the token {} cannot be read: {error}", path.display())
                })?;
                token.trim().clone_into(&mut self.options.token);
            }
            "ca" => self.options.ca = Some(folder.join(value)),
            "timeout" => self.timeout = Some(seconds(key, value)?),
            "connect_timeout" => self.options.connect_time = seconds(key, value)?,
            "file_bytes" => {
                self.options.file_bytes = value
                    .parse()
                    .map_err(|_| format!("`{key}` is a number of bytes, not `{value}`"))?;
            }
            _ => {
                return Err(format!(
                    "`{key}` is no key; there are servers, token_file, ca, timeout, connect_timeout and file_bytes"
                ));
            }
        }
        Ok(())
    }
}

/// Names between commas or blanks.
fn list(text: &str) -> Vec<String> {
    let names = text.split([',', ' ', '\t']).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn seconds(key: &str, value: &str) -> Result<Duration, String> {
    let wrong = || format!("`{key}` is a number of seconds above 0, not `{value}`");
    let number: f64 = value.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number).map_err(|_| wrong())?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("grpc.conf");
        std::fs::write(folder.path().join("token"), "secret\n").expect("a token");
        std::fs::write(&path, text).expect("a file");
        Config::read(&path)
    }

    #[test]
    fn lines_are_keys_with_values() {
        let text = "# where\nservers = a:1, unix:/tmp/b  c:3\n\n token_file=token # who\nca=ca.pem\ntimeout = 1.5\nconnect_timeout=2\nfile_bytes = 4096\n";
        let config = read(text).expect("it is right");
        assert_eq!(config.servers, ["a:1", "unix:/tmp/b", "c:3"]);
        assert_eq!(config.options.token, "secret");
        assert!(config.options.ca.is_some_and(|ca| ca.ends_with("ca.pem")));
        assert_eq!(config.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(config.options.connect_time, Duration::from_secs(2));
        assert_eq!(config.options.file_bytes, 4096);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, said) in [
            ("servers = a:1\nwhat", 2, "`key = value`"),
            ("server =", 1, "names no server"),
            ("\n\nport = 7", 3, "`port` is no key"),
            ("timeout = soon", 1, "not `soon`"),
            ("timeout = -1", 1, "not `-1`"),
            ("timeout = 0", 1, "not `0`"),
            ("file_bytes = 16 GiB", 1, "a number of bytes, not `16 GiB`"),
            ("token_file = not/there", 1, "cannot be read"),
        ] {
            let failure = read(text).expect_err(text);
            assert_eq!(failure.code, Code::ConfigFileError);
            assert!(failure.detail.contains(&format!(".conf:{line}: ")), "{}", failure.detail);
            assert!(failure.detail.contains(said), "{}", failure.detail);
        }
        let none = Config::read(Path::new("/not/there")).expect_err("no file");
        assert_eq!(none.code, Code::ConfigFileNotFound);
    }
}
