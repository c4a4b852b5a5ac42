//! Bodies of frames from clients and servers to a metaserver, for the fuzz targets and the tests of frames.

#![allow(dead_code)] // Each that includes it uses a part.

use kumi_rpc::{
    AttemptOutcome, AttemptReport, Placement, PlacementRequest, ServerRegistration, Ticket,
    TraceContext, Transfer,
};

/// A place in a trace.
pub fn context() -> TraceContext {
    let text = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    TraceContext::parse(text).expect("a traceparent")
}

pub const TICKET: Ticket = Ticket { call: 0x0102_0304_0506_0708, attempt: 3 };

pub fn placing() -> PlacementRequest {
    PlacementRequest {
        key: (1, 2),
        hash: 3,
        bytes_out: 4,
        bytes_back: 5,
        operations: 1.0,
        time_ms: 6,
        attempts: 7,
        priority: 8,
        idempotent: true,
        routine: "f".into(),
        bound: false,
        input_locations: Vec::new(),
    }
}

pub fn over() -> AttemptReport {
    let (out, back) = (Transfer { bytes: 1, ns: 2 }, Transfer { bytes: 3, ns: 4 });
    AttemptReport {
        ticket: TICKET,
        ended: AttemptOutcome::Broken,
        out,
        back,
        ran_ns: 5,
        waited_ns: 6,
    }
}

pub fn placed(pass: &str) -> Placement {
    Placement { ticket: TICKET, address: "h:1".into(), server: "s".into(), pass: pass.into() }
}

pub fn register() -> ServerRegistration {
    ServerRegistration {
        name: "s".into(),
        address: "h:1".into(),
        site: String::new(),
        version: "1".into(),
        slots: 2,
        processors: 4,
        speed: 1.0,
        offers: 1,
        key: None,
    }
}
