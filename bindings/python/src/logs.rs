//! Logs of calls at servers.

use kumi_call_client::{LogRequest, LogSources, Remote, TraceId};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use crate::call::failure;

/// The servers that keep logs of a user's calls.
#[pyclass(frozen)]
pub struct NativeLogSources {
    sources: LogSources,
}

impl NativeLogSources {
    /// The servers that this connection leads to.
    pub fn of(py: Python<'_>, client: &Remote) -> PyResult<NativeLogSources> {
        let sources = py.detach(|| client.log_sources()).map_err(|error| failure(&error))?;
        Ok(NativeLogSources { sources })
    }

    /// The answer of a server as JSON.
    fn ask(&self, py: Python<'_>, server: usize, request: LogRequest) -> PyResult<String> {
        let no_server = || PyIndexError::new_err("there is no such server");
        let source = self.sources.servers.get(server).ok_or_else(no_server)?;
        Ok(py.detach(|| source.client.logs_json(&request)).map_err(|error| failure(&error))?)
    }
}

#[pymethods]
impl NativeLogSources {
    /// The names of the servers that can be asked.
    fn servers(&self) -> Vec<String> {
        self.sources.servers.iter().map(|source| source.label.clone()).collect()
    }

    /// The names of the servers that cannot be asked, and why.
    fn unreachable(&self) -> Vec<(String, String)> {
        let unreachable = self.sources.unreachable.iter();
        unreachable.map(|source| (source.label.clone(), source.why.to_string())).collect()
    }

    /// The latest calls at a server, at most so many.
    fn latest(&self, py: Python<'_>, server: usize, most: u32) -> PyResult<String> {
        self.ask(py, server, LogRequest::Latest(most))
    }

    /// A call by its number at the server, with its lines from this one on.
    fn call(&self, py: Python<'_>, server: usize, call: u64, line: u64) -> PyResult<String> {
        self.ask(py, server, LogRequest::Call { call, from: line })
    }

    /// The attempts of a call by its number at the metaserver.
    fn placed(&self, py: Python<'_>, server: usize, call: u64) -> PyResult<String> {
        self.ask(py, server, LogRequest::Placed(call))
    }

    /// The calls of a trace.
    fn trace(&self, py: Python<'_>, server: usize, trace: &str) -> PyResult<String> {
        let trace = TraceId::parse(trace.as_bytes())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.ask(py, server, LogRequest::Trace(trace))
    }
}
